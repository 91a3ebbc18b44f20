"""`python -m pipelines NAME …`, see `pipelines.command`."""

import sys

from pipelines.command import main

if __name__ == "__main__":
    sys.exit(main())
