"""A text that a careless renderer sends to the terminal as it is."""

HOSTILE = "\x1b[31m [red] $x$ NUL\x00 \u202eabc שלום e\u0301 👨‍👩‍👧 日本語 </script> ⏎ averyveryverylongword"
