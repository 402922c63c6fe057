"""Install the programs of real nodes: `python -m navarchos.testing.nodes`, as `make nodes` does."""

from pathlib import Path

import click

from navarchos.errors import NavarchosError
from navarchos.testing.controlplane import NODE_TOOLS
from navarchos.testing.controlplane.installer import ToolInstaller
from navarchos.testing.nodes.nodes import node_lookup
from navarchos.testing.nodes.requirements import MachineLacks, check_requirements
from navarchos.testing.nodes.testimages import TestImages

__all__ = ["main"]


@click.command()
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for installed programs. Default: below the user's cache folder.",
)
def main(cache: Path | None) -> None:
    """Find, download or build kubelet, containerd and the other programs of a node.

    Searches KUBEBUILDER_ASSETS, the PATH and the cache, then downloads published releases
    and verifies their checksums. Programs that cannot be downloaded are built with the Go
    toolchain. Makes the test images. Prints the path of each file, and on standard error what
    this machine lacks to run nodes, which is not an error here.
    """

    def report(line: str) -> None:
        click.echo(line, err=True)

    try:
        for binary in ToolInstaller(node_lookup(cache), report=report).obtain(NODE_TOOLS):
            click.echo(binary.path)
        images = TestImages(report=report)
        for archive in (images.pause(), images.busybox()):
            click.echo(archive)
    except NavarchosError as error:
        raise click.ClickException(str(error)) from error
    try:
        check_requirements()
    except MachineLacks as error:
        report(f"nodes cannot run here yet: {error}")


if __name__ == "__main__":
    main(prog_name="python -m navarchos.testing.nodes")
