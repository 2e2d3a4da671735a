"""Reads a policy of a cache as a user writes it: its name with its numbers."""

import re
from dataclasses import fields
from typing import Any, Final

from attnviz.base.errors import AttnvizError, choices, option
from attnviz.metrics.cache_policies import HeavyHitters, Policy, SinksAndRecent, SnapKV, Top
from attnviz.metrics.quest import Quest

EXAMPLES: Final = "sinks:4+recent:1020, h2o:1024, snapkv:1024, quest:1024 or top:4096"
MAX_KEYS = 10_000_000
PART = re.compile(r"([a-z0-9]+)[:=]([0-9]{1,9})")

POLICIES: dict[str, type[Any]] = {
    "sinks": SinksAndRecent,
    "recent": SinksAndRecent,
    "top": Top,
    "h2o": HeavyHitters,
    "snapkv": SnapKV,
    "quest": Quest,
}


def parse_policy(text: str) -> Policy:
    """Returns the policy that a text describes, such as ``sinks:4+recent:1020``, ``top:64`` or ``snapkv:64,window=16``.

    Raises:
        AttnvizError: if the text has another form, names no policy, an unknown number or a number twice, or if a number
            is out of range.
    """
    option_text = option("policy", text)
    matches = [PART.fullmatch(part.strip()) for part in re.split(r"[+,]", text)]
    numbers = {match[1]: int(match[2]) for match in matches if match}
    if len(numbers) != len(matches):
        raise AttnvizError(f"{option_text} cannot be read; write {EXAMPLES}")
    policy_name = next(iter(numbers))
    if policy_name not in POLICIES:
        raise AttnvizError(f"unknown policy {policy_name!r}; {choices(policy_name, POLICIES)}")
    policy_class = POLICIES[policy_name]
    field_names = [field.name for field in fields(policy_class)]
    unknown_field = next((name for name in numbers if name not in field_names), None)
    if unknown_field is not None:
        raise AttnvizError(
            f"{option_text} names {unknown_field!r}, and {policy_name} takes {' and '.join(field_names)}; "
            f"write {EXAMPLES}"
        )
    policy: Policy = policy_class(**numbers)
    _refuse_numbers(policy, option_text)
    return policy


def _refuse_numbers(policy: Policy, option_text: str) -> None:
    """Raises AttnvizError if a number of a policy is out of range, or the kernel of `SnapKV` is even."""
    if not 0 < policy.budget <= MAX_KEYS:
        raise AttnvizError(f"{option_text} holds {policy.budget} keys; give 1 to {MAX_KEYS}")
    if isinstance(policy, HeavyHitters) and policy.h2o < 2:
        raise AttnvizError(
            f"{option_text} holds 1 key, which cannot be half latest and half heaviest keys; give 2 or more"
        )
    if isinstance(policy, SnapKV):
        if not 0 < policy.window < policy.snapkv:
            raise AttnvizError(
                f"{option_text} needs a window of at least 1 key and more keys than the window of {policy.window}; "
                f"write snapkv:{max(policy.snapkv, 2)},window={max(policy.snapkv // 2, 1)}, for example"
            )
        if policy.kernel % 2 == 0:
            raise AttnvizError(
                f"{option_text} has an even kernel, which has no middle; give an odd one, such as kernel=5"
            )
    if isinstance(policy, Quest) and not 0 < policy.page <= policy.quest:
        raise AttnvizError(
            f"{option_text} needs pages of 1 to {policy.quest} keys, not {policy.page}; "
            f"write quest:{policy.quest},page={policy.quest}, for example"
        )
