"""Install the programs of a control plane: `python -m navarchos.testing.controlplane`."""

from pathlib import Path

import click

from navarchos.errors import ConfigError
from navarchos.testing.controlplane import binaries, errors
from navarchos.testing.controlplane.installer import ToolInstaller
from navarchos.testing.controlplane.tools import find_tools

__all__ = ["main"]


@click.command()
@click.argument("names", metavar="[PROGRAM]...", nargs=-1)
@click.option(
    "--module",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The Go module to build in. Default: the one of each program.",
)
@click.option(
    "--cache",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder for installed programs. Default: below the user's cache folder.",
)
def main(names: tuple[str, ...], module: Path | None, cache: Path | None) -> None:
    """Find, download or build etcd, kube-apiserver and the other control plane programs.

    Searches KUBEBUILDER_ASSETS, the PATH and the cache, then downloads published releases
    and verifies their checksums. Programs that cannot be downloaded are built with the Go
    toolchain. prometheus is fetched only by its name, from Debian's package. Prints the path
    of each program; progress goes to standard error.
    """
    try:
        tools = find_tools(names)
        lookup = binaries.Lookup(
            cache=binaries.Cache(cache if cache is not None else binaries.cache_directory())
        )
        installer = ToolInstaller(
            lookup,
            module=module.absolute() if module is not None else None,
            report=lambda line: click.echo(line, err=True),
        )
        for binary in installer.obtain(tools):
            click.echo(binary.path)
    except (ConfigError, errors.ControlPlaneError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m navarchos.testing.controlplane")
