"""Name the winner of a vote privately, and nothing else. Exact tables of votes give people away.

Counts by candidate need noise for every vote that one person may have. A choice needs noise for one vote only: it shows
one name, and a person moves each score by at most one, however many candidates they approve of.
"""

import polars as pl

import dp_polars as dp

five = pl.DataFrame(
    {
        "name": ["Ann", "Bea", "Cleo", "Dan", "Ed"],
        "gender": ["woman", "woman", "woman", "man", "man"],
        "vote": ["blue", "red", "blue", "red", "red"],
    }
)
print("Five voters, counted exactly:", five.group_by("gender", "vote").len().sort("gender", "vote").rows())
print("Both men voted red: whoever knows Dan or Ed knows how he voted.\n")

# Everybody has one vote.
VOTES = {"blue": 760, "red": 540, "green": 400, "white": 300}
PARTIES = list(VOTES)
ballots = [party for party, number in VOTES.items() for _ in range(number)]
town = pl.DataFrame({"voter": range(2000), "vote": ballots})

with dp.Session(epsilon=1.0, unit="voter", max_groups=1, max_rows_per_group=1):
    counts = dp.private(town).preview.count("vote", keys=PARTIES, epsilon=0.1)
    choice = dp.private(town).preview.noisy_max("vote", PARTIES, epsilon=0.1)
    print("A town of 2,000, one vote each, epsilon 0.1 for either question:")
    print(f"  each count is within {counts.expected_error():.0f} of the truth (95 %)")
    print(f"  the winner is within {choice.expected_regret():.0f} votes of the best (95 %)")
    print("  noisy counts:", dict(dp.private(town).count("vote", keys=PARTIES, epsilon=0.1).rows()))
    print("  noisy max:   ", dp.private(town).noisy_max("vote", PARTIES, epsilon=0.1).item())

# Approval voting: everyone approves of as many of 200 films as they like.
# Each film is liked by 4 people fewer than the one before.
FILMS = [f"film {number:03}" for number in range(200)]
people = pl.DataFrame({"voter": range(2000)})
films = pl.DataFrame({"film": FILMS}).with_row_index("number")
place = (pl.col("voter") * 7919 + pl.col("number").cast(pl.Int64) * 1103) % 2000
approvals = people.join(films, how="cross").filter(place < 1000 - 4 * pl.col("number").cast(pl.Int64))
likes = dict(approvals.group_by("film").len().rows())

with dp.Session(epsilon=1.0, unit="voter"):
    counts = dp.private(approvals).preview.count_units("film", keys=FILMS, epsilon=0.1)
    choice = dp.private(approvals).preview.noisy_max("film", FILMS, score="units", epsilon=0.1)
    duel = dp.private(approvals).preview.noisy_max("film", FILMS[:2], score="units", epsilon=0.1)
    print(f"\n{approvals.height:,} approvals of 200 films by 2,000 people, epsilon 0.1 for either question:")
    print(f"  each count is within {counts.expected_error():,.0f} (95 %): a person may approve of every film")
    print(f"  the winner is within {choice.expected_regret():.0f} approvals of the best (95 %)")
    same = choice.rate == duel.rate
    print(f"  the choice has the same noise as one between two films: {same}")
    noisy = dp.private(approvals).count_units("film", keys=FILMS, epsilon=0.1)
    by_counts = noisy.sort(noisy.columns[-1])["film"][-1]
    by_choice = dp.private(approvals).noisy_max("film", FILMS, score="units", epsilon=0.1).item()
    for what, film in (("largest noisy count", by_counts), ("noisy max", by_choice)):
        print(f"  {what}: {film}, liked by {likes[film]:,}; the best is liked by {max(likes.values()):,}")
