"""The sources of CustomResourceDefinitions, and invalid ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from navarchos.crd import ManifestError, to_yaml
from navarchos.testing.definitions import load_definitions

V1 = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"


def definition(name: str, scope: str = "Cluster") -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"scope": scope},
    }


def names(*sources: Any, **options: Any) -> list[str]:
    return [str(found["metadata"]["name"]) for found in load_definitions(*sources, **options)]  # type: ignore[index]  # objects


def test_a_folder_is_read_in_the_order_of_file_names_and_not_below(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(to_yaml([definition("b1"), definition("b2")]))
    (tmp_path / "a.json").write_text(json.dumps({"kind": "List", "items": [definition("a")]}))
    (tmp_path / "c.yaml").write_text("apiVersion: v1\nkind: Service\n---\n---\n")
    (tmp_path / "c.yaml.orig").write_text(to_yaml([definition("old")]))
    (tmp_path / "below.yaml").mkdir()
    (tmp_path / "below.yaml" / "d.yaml").write_text(to_yaml([definition("d")]))
    assert names(tmp_path) == ["a", "b1", "b2"]
    assert names(str(tmp_path / "b.yml"), definition("z"), tmp_path / "a.json") == [
        "b1", "b2", "z", "a",
    ]  # fmt: skip


@pytest.mark.rule("TE-02")
def test_equal_definitions_count_once_and_different_ones_of_one_name_are_refused(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(to_yaml([definition("a"), definition("b")]))
    second.write_text(to_yaml([definition("b"), definition("c")]))
    assert names(first, second, definition("a")) == ["a", "b", "c"]
    second.write_text(to_yaml([definition("b", "Namespaced")]))
    with pytest.raises(ManifestError) as caught:
        load_definitions(tmp_path)
    assert str(caught.value) == (
        f"{second}: b is defined differently in {first}: keep one of the two"
    )


@pytest.mark.rule("TE-02")
def test_a_missing_path_is_an_error_unless_allowed(tmp_path: Path) -> None:
    missing = tmp_path / "crds"
    with pytest.raises(ManifestError, match="crds: the file or folder does not exist"):
        load_definitions(definition("a"), missing)
    assert names(definition("a"), missing, missing_ok=True) == ["a"]
    missing.mkdir()
    for missing_ok in (False, True):  # an existing folder must contain a definition
        with pytest.raises(ManifestError, match="crds: contains no CustomResourceDefinition"):
            load_definitions(missing, missing_ok=missing_ok)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: [", "not YAML"),
        ("- 1", "a document is a list"),
        ("kind: CustomResourceDefinition", "an object has no apiVersion"),
        (
            "apiVersion: apiextensions.k8s.io/v1beta1\nkind: CustomResourceDefinition\n",
            "contains apiextensions.k8s.io/v1beta1 CustomResourceDefinition: only",
        ),
        (
            V1,
            "has no metadata.name",
        ),
        (
            f"{V1}metadata: {{name: a}}\n",
            "a has no spec",
        ),
        (
            f"{V1}metadata: {{name: a}}\nspec: {{properties: {{on: {{}}}}}}\n",
            "CustomResourceDefinition a: quote the key written as yes, on or true",
        ),
    ],
)
def test_an_error_in_a_file_names_the_file(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "crd.yaml"
    file.write_text(text)
    with pytest.raises(ManifestError, match=why) as caught:
        load_definitions(file)
    assert caught.value.file == str(file)


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(ManifestError, match="a given object: contains v1 Pod"):
        load_definitions({"apiVersion": "v1", "kind": "Pod"})
