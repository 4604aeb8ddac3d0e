"""`python -m xflow`, the same as the command `xflow`."""

import sys

from xflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
