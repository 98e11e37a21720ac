"""What makes a reply of the small random model last until it is stopped."""

from __future__ import annotations

from strata_tui.config import Settings

LONG = Settings(temperature=0.0, max_tokens=400)
EOS_PROOF = "a long answer please"
