"""`python -m diarist` is the `diarist` command."""

from .cli import main

main()
