"""Set a price in an auction by what it earns, instead of adding noise to the best price.

Everyone whose bid is at least the price buys. A price just above the best one may earn nothing, so a little noise in
the price could ruin the sale. `select_best` weighs every price by its revenue, with the exponential mechanism.
"""

import polars as pl

import dp_polars as dp


def paid(price: pl.Expr) -> pl.Expr:
    """Return what each bidder pays at a price: the price, or nothing if it is above the bid."""
    return pl.when(pl.col("bid") >= price).then(price).otherwise(0.0)


def revenue(bids: pl.DataFrame, price: float) -> float:
    """Return exactly what a price earns. This is for the reader, not for release."""
    return float(bids.select(paid(pl.lit(price)).sum()).item())


four = pl.DataFrame({"bidder": range(4), "bid": [1.00, 1.00, 1.00, 3.01]})
print("Four bids, 1, 1, 1 and 3.01: what a price earns")
for price in (1.00, 1.01, 3.01, 3.02):
    print(f"  {price:.2f}: {revenue(four, price):.2f}")
print("A cent above 1.00 earns a quarter, a cent above 3.01 nothing: noise in the price would ruin the sale.\n")

# The same with several hundred bidders: most bid about 1, some bid much more.
bids = pl.DataFrame({"bidder": range(600)}).with_columns(
    bid=pl.when(pl.col("bidder") % 4 == 0).then(pl.lit(3.01)).otherwise(1 + pl.col("bidder") % 50 / 100)
)
prices = [cents / 100 for cents in range(5, 501, 5)]

with dp.Session(epsilon=1.0, unit="bidder", max_rows_per_group=1):  # one bid of each bidder counts
    print(dp.private(bids).preview.select_best(prices, paid, bounds=(0, 5), epsilon=0.5))
    chosen = dp.private(bids).select_best(prices, paid, bounds=(0, 5), epsilon=0.5).item()

best = max(prices, key=lambda price: revenue(bids, price))
print(f"\nchosen price {chosen:.2f}: earns {revenue(bids, chosen):.2f}")
print(f"best price   {best:.2f}: earns {revenue(bids, best):.2f}")
