"""Manifests as text and as files."""

from pathlib import Path
from typing import Any

import yaml

from navarchos.crd import differences, file_name, files, to_yaml, write_files

RULES = [{"rule": "self > 0"}]
ONE: dict[str, Any] = {"metadata": {"name": "b.example.com"}, "a": RULES, "b": RULES}
TWO: dict[str, Any] = {"metadata": {"name": "a.example.com"}, "text": "yes"}


def test_documents_follow_one_another_under_one_header() -> None:
    text = to_yaml([ONE, TWO], header="Made by hand.\nReally.")
    assert text.startswith("# Made by hand.\n# Really.\n---\n")
    assert list(yaml.safe_load_all(text)) == [ONE, TWO]


def test_parts_that_are_shared_are_written_out() -> None:
    text = to_yaml([ONE])
    assert "&" not in text
    assert text.count("self > 0") == 2


def test_a_file_is_named_for_group_and_plural() -> None:
    assert file_name(ONE) == "example.com_b.yaml"


def test_files_that_were_just_written_do_not_differ(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "crds"
    write_files(directory, files([ONE, TWO]))
    assert differences(directory, files([ONE, TWO])) == []


def test_each_file_that_differs_is_one_line(tmp_path: Path) -> None:
    write_files(tmp_path, files([ONE]))
    found = differences(tmp_path, files([ONE | {"c": 1}, TWO]))
    assert found == [
        f"{tmp_path}/example.com_a.yaml is missing",
        f"{tmp_path}/example.com_b.yaml differs from the generated text",
    ]


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("resources: []\n")
    write_files(tmp_path, files([ONE]))
    assert differences(tmp_path, files([ONE])) == []
