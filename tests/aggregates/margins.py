"""How far an answer may be from the exact one, derived from its plan. It is farther off with probability below 1e-9."""

import math

MISS = 1e-9


def margin(measurement, unit=1.0):
    """Return how far noise moves a sum: s log(2 / p) for Laplace (exceeded with probability p), or 7 sigma (3e-12).

    `unit` is the value of one stored unit: 10**-scale for decimals, 1 otherwise.
    """
    spread = float(measurement.noise.parameter)
    steps = spread * math.log(2 / MISS) if measurement.noise.mechanism == "laplace" else 7 * math.sqrt(spread)
    return math.floor(steps) * float(measurement.grid.step) * unit


class Margins:
    """The margins of the sums behind one aggregate, by their role: x, xx, rows and so on."""

    def __init__(self, plan, unit=1.0):
        (compiled,) = plan.compiled
        measurements = {role: plan.measurement(name) for role, name in compiled.statistics.items()}
        if "basis" in measurements:
            self._of_basis(measurements["basis"], unit, compiled.aggregate.values[0].integers)
            return
        self.sums = {
            role: margin(measurement, 1 if role == "rows" else unit ** len(role))
            for role, measurement in measurements.items()
        }
        letters = [role for role in measurements if len(role) == 1]
        self.most = {one: measurements[one].grid.largest * float(measurements[one].grid.step) * unit for one in letters}
        exact = all(value.integers for value in compiled.aggregate.values)
        self.step = {one: 0 if exact else float(measurements[one].grid.step) * unit for one in letters}

    def _of_basis(self, measurement, unit, integers):
        """Bound rows, t - 1/2 and (t - 1/2)**2, with t a value's place in its bounds, from k sums, each c rows off."""
        k, grid = len(measurement.statistic.columns), measurement.grid
        step = float(grid.step) * unit
        width, c = (
            (grid.high - grid.low) * step,
            margin(measurement) / float(measurement.grid.step) / measurement.statistic.whole,
        )
        self.sums = {"rows": k * c, "x": 1.5 * k * c * width, "xx": (1 + 1.25 * k) * c * width**2}
        self.most, self.step = {"x": width / 2}, {"x": 0 if integers else step}

    def mean(self, rows, role="x"):
        """Add the noise on the sum, that on the count times the most that a row adds, and the rounding to the grid."""
        few = self.sums["rows"]
        return (self.sums[role] + self.most[role] * few) / (rows - few) + self.step[role] + 1e-9

    def spread(self, rows, role="xx"):
        """Bound the error of a mean of products minus the product of means, scaled by n / (n - 1), with rounding."""
        (first, second), few = role, self.sums["rows"]
        most = self.most[first] * self.most[second]
        products = (self.sums[role] + most * few) / (rows - few)
        products += self.step[first] * self.most[second] + self.step[second] * self.most[first]
        one, other = self.mean(rows, first), self.mean(rows, second)
        means = one * self.most[second] + other * self.most[first] + one * other
        divisor = max(rows - 1 - few, 1)
        return (products + means) * rows / divisor + most * few / divisor


def slack(plan):
    """Return how many rows the rank of a chosen value may be off, if each grid point r off weighs exp(-rate * r).

    The exponent is epsilon / (2 max_rows) per row of rank, on each level of a descent.
    """
    (measurement,) = [measurement for measurement in plan.measurements if measurement.noise is None]
    rate = float(measurement.epsilon) / (2 * measurement.statistic.max_rows)
    points = measurement.grid.high - measurement.grid.low + 1
    return math.log(points / MISS) / rate


def step_of(plan):
    """Return the step of a choice's grid, to which values were rounded."""
    (measurement,) = [measurement for measurement in plan.measurements if measurement.noise is None]
    return float(measurement.grid.step)


def off(values, answer, quantile, step=0.0):
    """Return how many rows the answer's rank is off: |(1 - q) below - q above| / max(q, 1 - q), with ties at best."""
    below = sum(value < answer - step for value in values)
    above = sum(value > answer + step for value in values)
    ties = len(values) - below - above
    least, most = (1 - quantile) * below - quantile * (above + ties), (1 - quantile) * (below + ties) - quantile * above
    return max(0.0, least, -most) / max(quantile, 1 - quantile)
