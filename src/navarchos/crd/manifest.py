"""Manifests as files: written, and compared with what is there."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

__all__ = ["Manifest", "differences", "file_name", "files", "to_yaml", "write_files"]

Manifest = Mapping[str, object]
"""An object of any kind, as JSON."""

_WIDTH: Final = 100


class _Dumper(yaml.SafeDumper):
    """Writes shared parts out in full: readers of manifests know no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(manifests: Iterable[Manifest], *, header: str = "") -> str:
    """Return the manifests as one stream of YAML documents.

    Args:
        manifests: In the order in which they are written; so are their fields.
        header: Lines of a comment on top, without the number sign.
    """
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    documents = (
        yaml.dump(manifest, Dumper=_Dumper, sort_keys=False, width=_WIDTH, allow_unicode=True)
        for manifest in manifests
    )
    return comment + "".join(f"---\n{document}" for document in documents)


def file_name(definition: Manifest) -> str:
    """Return where the manifest of a definition lives: `<group>_<plural>.yaml`."""
    name = str(_mapping(definition["metadata"])["name"])
    plural, _, group = name.partition(".")
    return f"{group}_{plural}.yaml"


def files(definitions: Iterable[Manifest], *, header: str = "") -> dict[str, str]:
    """Return the text of each definition's file by the file's name."""
    return {file_name(each): to_yaml([each], header=header) for each in definitions}


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write each text into its file, making the directory where it is missing.

    Raises:
        OSError: Files before the one that failed have been written.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")


def differences(directory: Path, texts: Mapping[str, str]) -> list[str]:
    """Compare files with what they should be; one line for each that differs.

    Files of other names are left alone: the directory may hold more than this.
    """
    found = []
    for name, text in sorted(texts.items()):
        path = directory / name
        if not path.is_file():
            found.append(f"{path} is missing")
        elif path.read_text(encoding="utf-8") != text:
            found.append(f"{path} differs from what would be generated")
    return found


def _mapping(value: object) -> Mapping[str, object]:
    assert isinstance(value, Mapping)
    return value
