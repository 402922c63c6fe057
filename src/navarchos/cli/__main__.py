"""`python -m navarchos.cli` is `navarchos`."""

from navarchos.cli.main import main

if __name__ == "__main__":
    main()
