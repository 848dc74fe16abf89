"""The source of randomness of the grammars, which says how wild a text is, too."""


class Dice:
    """Throws what a grammar asks for. `wild` is how often a place of a text holds something hostile or wrong."""

    def __init__(self, source):
        self.random, self.randrange, self.choice = source.random, source.randrange, source.choice
        self.wild = source.choice([0.0, 0.0, 0.0, 0.01, 0.05])

    def happens(self, times=1.0):
        """Whether something hostile happens here, so many times as often as usual."""
        return self.wild > 0 and self.random() < self.wild * times

    def usually(self, usual, others):
        """Return one of the usual choices, or something hostile."""
        return self.choice(others if self.happens(5) else usual)
