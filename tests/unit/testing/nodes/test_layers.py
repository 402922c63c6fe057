import os
import stat
from pathlib import Path

import pytest

from navarchos.testing.nodes import layers
from navarchos.testing.nodes.layers import (
    CopiedFiles,
    LayerCache,
    Tree,
    fingerprint,
    key_of,
)

OWNER = (os.getuid(), os.getgid())


def write(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{folder.name}: {name}")
    return folder


def hide(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.mknod(path, stat.S_IFCHR, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("this kernel lets only root make the marks of overlayfs")


def names(tree: Tree, name: str = "") -> list[str]:
    return [found for found, _ in tree.walk(name)]


def test_the_highest_layer_with_a_file_shows_it(tmp_path: Path) -> None:
    low = write(tmp_path / "low", "etc/a", "etc/b")
    high = write(tmp_path / "high", "etc/b", "etc/c")
    tree = Tree((low, high))
    assert names(tree) == ["etc", "etc/a", "etc/b", "etc/c"]
    assert tree.find("etc/a") == low / "etc/a"
    assert tree.find("etc/b") == high / "etc/b"
    assert tree.find("etc/d") is None
    assert tree.find("etc/a/below") is None
    assert tree.is_folder("etc")
    assert not tree.is_folder("etc/a")


def test_a_removed_file_is_hidden_and_can_come_again(tmp_path: Path) -> None:
    low = write(tmp_path / "low", "etc/a", "opt/tool/bin")
    middle = write(tmp_path / "middle", "etc/x")
    hide(middle / "etc/a")
    hide(middle / "opt")
    tree = Tree((low, middle))
    assert names(tree) == ["etc", "etc/x"]
    assert tree.find("etc/a") is None
    assert tree.find("opt/tool/bin") is None
    high = write(tmp_path / "high", "opt/new")
    assert names(Tree((low, middle, high))) == ["etc", "etc/x", "opt", "opt/new"]


def test_an_opaque_folder_hides_those_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = write(tmp_path / "low", "etc/a", "etc/deep/b", "opt/c")
    high = write(tmp_path / "high", "etc/new", "etc/deep/d")
    monkeypatch.setattr(layers, "is_opaque", lambda path: path == high / "etc")
    tree = Tree((low, high))
    assert names(tree) == ["etc", "etc/deep", "etc/deep/d", "etc/new", "opt", "opt/c"]
    assert tree.find("etc/a") is None
    assert tree.find("etc/deep/b") is None


def test_a_file_hides_a_folder(tmp_path: Path) -> None:
    low = write(tmp_path / "low", "etc/a")
    high = write(tmp_path / "high", "etc")
    assert names(Tree((low, high))) == ["etc"]
    assert Tree((low, high)).find("etc/a") is None


@pytest.mark.parametrize(
    ("name", "resolved"),
    [
        ("bin/sh", "usr/bin/sh"),
        ("run/../bin/sh", "usr/bin/sh"),
        ("var/run/lock", "run/lock"),
        ("up/etc", "etc"),
        ("/etc/new/file", "etc/new/file"),
        ("", ""),
    ],
)
def test_links_lead_to_places_inside_the_root(tmp_path: Path, name: str, resolved: str) -> None:
    root = write(tmp_path / "root", "usr/bin/sh", "run/x", "etc/a", "var/x")
    (root / "bin").symlink_to("usr/bin")
    (root / "var/run").symlink_to("/run")
    (root / "up").symlink_to("../../..")
    assert Tree((root,)).resolve(name) == resolved


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    root = write(tmp_path / "root", "x")
    (root / "a").symlink_to("b")
    (root / "b").symlink_to("a")
    with pytest.raises(OSError, match="a/c leads to a circle of links"):
        Tree((root,)).resolve("a/c")


def test_hidden_files_and_their_folders_are_left_out(tmp_path: Path) -> None:
    root = write(tmp_path / "root", "src/a.py", "src/cache/a.pyc", "src/kept/cache/b.py")
    (root / "empty").mkdir()
    tree = Tree((root,), lambda name: "cache" in name and not name.endswith("b.py"))
    assert names(tree) == [
        "empty",
        "src",
        "src/a.py",
        "src/kept",
        "src/kept/cache",
        "src/kept/cache/b.py",
    ]


def test_copied_files_keep_their_mode_and_get_the_owner(tmp_path: Path) -> None:
    source = write(tmp_path / "source", "tool")
    (source / "tool").chmod(0o750)
    (source / "link").symlink_to("tool")
    new = tmp_path / "new"
    new.mkdir()
    copy = CopiedFiles(Tree(()), new, OWNER)
    copy.put("opt/bin/tool", source / "tool")
    copy.put("opt/bin/link", source / "link")
    copy.put("opt/data", source)
    assert stat.S_IMODE((new / "opt/bin/tool").stat().st_mode) == 0o750
    assert (new / "opt/bin/link").readlink() == Path("tool")
    assert stat.S_IMODE((new / "opt/data").stat().st_mode) == stat.S_IMODE(source.stat().st_mode)
    assert list((new / "opt/data").iterdir()) == []
    assert (new / "opt/bin/tool").stat().st_ino != (source / "tool").stat().st_ino


def test_files_of_other_layers_are_shared(tmp_path: Path) -> None:
    source = write(tmp_path / "source", "tool")
    (source / "link").symlink_to("/nowhere")
    new = tmp_path / "new"
    new.mkdir()
    copy = CopiedFiles(Tree(()), new, OWNER, is_shared=True)
    copy.put("tool", source / "tool")
    copy.put("link", source / "link")
    assert (new / "tool").stat().st_ino == (source / "tool").stat().st_ino
    assert (new / "link").readlink() == Path("/nowhere")


def test_folders_of_lower_layers_keep_their_mode(tmp_path: Path) -> None:
    low = write(tmp_path / "low", "srv/a")
    (low / "srv").chmod(0o1770)
    new = tmp_path / "new"
    new.mkdir()
    source = write(tmp_path / "source", "b")
    CopiedFiles(Tree((low,)), new, OWNER).put("srv/b", source / "b")
    assert stat.S_IMODE((new / "srv").stat().st_mode) == 0o1770
    assert [path.name for path in (new / "srv").iterdir()] == ["b"]


def test_a_folder_and_a_file_do_not_replace_each_other(tmp_path: Path) -> None:
    low = write(tmp_path / "low", "etc/a", "opt")
    source = write(tmp_path / "source", "b")
    new = tmp_path / "new"
    new.mkdir()
    copy = CopiedFiles(Tree((low,)), new, OWNER)
    with pytest.raises(IsADirectoryError, match="/etc is a folder already"):
        copy.put("etc", source / "b")
    with pytest.raises(NotADirectoryError, match="/opt is not a folder"):
        copy.put("opt/b", source / "b")


def test_a_layer_is_made_once(tmp_path: Path) -> None:
    made = []

    def make(folder: Path, scratch: Path) -> None:
        made.append(scratch)
        write(folder, "file")

    cache = LayerCache(tmp_path / "cache")
    first = cache.obtain("abc", make)
    assert cache.obtain("abc", make) == first
    assert len(made) == 1
    assert not made[0].exists()
    assert stat.S_IMODE(first.folder.stat().st_mode) == 0o755
    packed = first.packed()
    assert packed.path == first.tar
    assert first.packed() == packed


def test_a_failed_layer_is_not_kept(tmp_path: Path) -> None:
    def fail(folder: Path, scratch: Path) -> None:
        write(folder, "file")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        LayerCache(tmp_path / "cache").obtain("abc", fail)
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_layers_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "_UNUSED_KEPT", 2)
    old = LayerCache(tmp_path)
    for age, key in enumerate(["a1", "a2", "a3", "a4"]):
        old.obtain(key, lambda folder, scratch: None)
        os.utime(tmp_path / key, (1000 - age, 1000 - age))
    new = LayerCache(tmp_path)
    new.obtain("a4", lambda folder, scratch: None)
    os.utime(tmp_path / "a4", (1, 1))  # in use, so its age does not matter
    new.sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a1", "a2", "a4"]


def test_keys_and_fingerprints_differ_by_what_they_stand_for(tmp_path: Path) -> None:
    assert key_of("a", ["b"]) == key_of("a", ("b",))
    assert key_of("a", "b") != key_of("ab")
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("x")
    file.chmod(0o600)
    link.symlink_to("file")
    seen = {fingerprint("n", file), fingerprint("m", file), fingerprint("n", link)}
    file.chmod(0o700)
    seen.add(fingerprint("n", file))
    file.write_text("y")
    seen.add(fingerprint("n", file))
    link.unlink()
    link.symlink_to("other")
    seen.add(fingerprint("n", link))
    assert len(seen) == 6
