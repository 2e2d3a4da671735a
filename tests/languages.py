"""The examples of the languages that page and inspector share: filters, addresses and places, ``languages.json``."""

import json
from pathlib import Path
from typing import Any

LANGUAGES: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
FILTERS, ADDRESSES, PLACES = (LANGUAGES[name] for name in ("filters", "addresses", "places"))
