"""The examples of the languages that the page and the inspector share, filters and addresses: in ``languages.json``."""

import json
from pathlib import Path
from typing import Any

LANGUAGES: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
FILTERS, ADDRESSES = LANGUAGES["filters"], LANGUAGES["addresses"]
