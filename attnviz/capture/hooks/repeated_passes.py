"""Recognises forward passes that call the same functions as the passes before them.

A decoder calls the same functions for each token that it writes. The origins of its queries and keys are then those of
the pass before, and need not be followed from function to function again.
"""

from typing import Generic, TypeVar

Call = TypeVar("Call")
MAX_FUNCTIONS = 2**17  # functions of a pass that are compared; a longer pass counts as new


class RepeatedPasses(Generic[Call]):
    """Compares the functions that a forward pass calls, by name and order, with those of the two passes before.

    Attributes:
        is_repeat: True while the present pass calls what two equal passes before it called.
        is_plain: False if the present pass has attention other than `note_plain_call` receives.
    """

    def __init__(self) -> None:
        self.is_repeat, self.is_plain = False, True
        self._names: list[str] = []  # of the functions in the present pass, in order
        self._calls: list[Call] = []
        self._last_names: list[str] = []
        self._last_calls: list[Call] = []
        self._function_index = self._call_index = 0

    def begin_pass(self, *, may_repeat: bool) -> None:
        """Begins a pass, which is a repeat as long as it calls what the last two passes called, if these are equal."""
        if not self.is_repeat:
            is_equal = self._names == self._last_names and len(self._names) < MAX_FUNCTIONS
            self._last_names, self._last_calls = self._names, self._calls
            self.is_repeat = is_equal and self.is_plain and bool(self._calls)
        self.is_repeat &= may_repeat
        self._names, self._calls, self.is_plain = [], [], True
        self._function_index = self._call_index = 0

    def repeats(self, name: str) -> bool:
        """Notes a function of the present pass; True if the pass is a repeat and the function is its next one."""
        if self.is_repeat:
            if self._last_names[self._function_index : self._function_index + 1] == [name]:
                self._function_index += 1
                return True
            self.end_repeat()
        if len(self._names) < MAX_FUNCTIONS:
            self._names.append(name)
        return False

    def end_repeat(self) -> None:
        """Ends a repeat: the rest of the pass is followed, and the pass after it is no repeat."""
        self.is_repeat = self.is_plain = False

    def note_plain_call(self, call: Call) -> None:
        """Keeps an attention call of the present pass for a pass that repeats it."""
        self._calls.append(call)

    def next_call(self) -> Call:
        """Returns the next attention call of the pass that is repeated."""
        self._call_index += 1
        return self._last_calls[self._call_index - 1]
