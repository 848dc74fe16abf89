"""Short numbers for units of 64 bits or more: the slots that they own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dp_polars._engines.bounding.blocks import Words

SLOT_BITS = 24
MIXER = 0x9E3779B97F4A7C15
"""Odd, so that multiplying by it loses nothing; it spreads units that differ in few bits."""


class Slots:
    """A table of owners. The first unit that asks for a slot owns it, for good; all other units there own nothing.

    So all rows of a unit get the same answer, and no two units the same slot.
    """

    def __init__(self) -> None:
        self._owners = np.zeros(1 << SLOT_BITS, np.uint64)

    def claim(self, mixed: Words, more: Words | None) -> tuple[Words, NDArray[np.bool_]]:
        """Return the slot of each row's unit, which its upper bits name, and whether it owns that.

        An owner is known by the bits of the unit that the slot doesn't say, or by its second word but for one bit;
        the lowest bit is set, so that no owner is 0.
        """
        slot = mixed >> np.uint64(64 - SLOT_BITS)
        own = (mixed << np.uint64(SLOT_BITS) if more is None else more) | np.uint64(1)
        owners = self._owners.take(slot.view(np.int64))
        free = np.flatnonzero(owners == 0)
        if len(free):
            self._owners[slot[free]] = own[free]  # of several, one
            owners[free] = self._owners[slot[free]]
        return slot, owners == own
