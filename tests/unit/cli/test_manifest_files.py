from pathlib import Path

import pytest

from navarchos.cli.errors import CommandError
from navarchos.cli.manifest_files import load

ROLLOUT = """
apiVersion: navarchos.pusher.com/v1alpha1
kind: NodeRollout
metadata: {generateName: rollout-}
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_every_object_of_every_file_is_read(tmp_path: Path) -> None:
    two = write(tmp_path / "two.yml", f"{ROLLOUT}---\n{ROLLOUT}---\n")
    one = write(tmp_path / "one.yml", "kind: List\nitems: [{apiVersion: v1, kind: Pod}]")
    found = load([two, one])
    assert [(m.kind, m.name) for m in found] == [
        ("NodeRollout", "rollout-"),
        ("NodeRollout", "rollout-"),
        ("Pod", "without a name"),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "not YAML"),
        ("- 1", "a document is a list"),
        ("kind: Pod", "has no apiVersion"),
        ("apiVersion: v1", "has no kind"),
        ("apiVersion: v1\nkind: Pod\nmetadata: [1]", "metadata must be a mapping"),
        ("apiVersion: v1\nkind: Pod\nspec: {a: [{no: 1}]}", "quote the key written as no"),
        ("", "contains no object"),
        ("---\n---\n", "contains no object"),
    ],
)
def test_an_invalid_file_is_refused_by_name(tmp_path: Path, text: str, reason: str) -> None:
    path = write(tmp_path / "bad.yml", text)
    with pytest.raises(CommandError) as caught:
        load([path])
    assert str(caught.value).startswith(f"{path}: ")
    assert reason in str(caught.value)
    assert caught.value.status == 2


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none\.yml: cannot be read: No such file"):
        load([tmp_path / "none.yml"])
