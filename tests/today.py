"""The seed of the day, by which a share of many cases is drawn: ``ATTNVIZ_SEED`` repeats a failure."""

import os
from datetime import date

SEED = int(os.environ.get("ATTNVIZ_SEED", date.today().toordinal()))
