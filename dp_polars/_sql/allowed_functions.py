"""The functions that a statement may call: private aggregates, and what DuckDB may run on public and released rows.

The functions that may be called over private rows are in `expressions`. DuckDB does not run those.
"""

from __future__ import annotations

from typing import Literal

from dp_polars._aggregates import REGISTRY, Aggregate
from dp_polars._aggregates.cut import CutByBounds, CutByCap


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SCALARS = _words(
    """
    + - * / // % ^ ** & | ~ << >> || @ !~~ ~~ ~~* !~~* ~~~ ^@ add subtract multiply divide mod fdiv fmod abs sign
    round round_even ceil ceiling floor trunc even sqrt cbrt exp ln log log2 log10 pow power pi degrees radians sin
    cos tan cot asin acos atan atan2 sinh cosh tanh greatest least isnan isinf isfinite gcd lcm xor
    bit_count greatest_common_divisor least_common_multiple nextafter lower upper lcase ucase trim ltrim rtrim
    length len strlen char_length character_length bit_length octet_length substring substr substring_grapheme left
    right replace reverse concat concat_ws contains prefix suffix starts_with ends_with position
    instr strpos split split_part string_split str_split string_to_array regexp_matches regexp_full_match
    regexp_replace regexp_extract regexp_extract_all regexp_split_to_array
    ascii chr unicode ord translate strip_accents levenshtein damerau_levenshtein editdist3
    hamming jaccard jaro_similarity jaro_winkler_similarity md5 sha1 sha256 hex unhex to_hex from_hex
    base64 to_base64 from_base64 encode decode year month day hour minute second millisecond microsecond quarter
    week weekofyear dayofmonth dayofweek dayofyear isodow isoyear yearweek weekday decade century millennium era
    epoch epoch_ms epoch_us epoch_ns julian date_part datepart date_trunc datetrunc date_diff datediff date_sub
    datesub date_add dayname monthname last_day make_date make_time make_timestamp make_timestamptz strftime
    strptime try_strptime to_timestamp to_years to_months to_weeks to_days to_hours to_minutes
    to_seconds to_milliseconds to_microseconds to_quarters to_decades to_centuries to_millennia
    coalesce ifnull if case constant_or_null struct_extract struct_extract_at struct_pack row
    list_value list_extract list_element array_extract list_contains list_has array_contains list_position
    list_slice array_slice map_extract map_extract_value element_at json_extract json_extract_string
    json_value cardinality
    """
)
PLAIN_AGGREGATES = _words(
    """
    count count_star sum sum_no_overflow fsum avg mean min max median mode quantile quantile_cont quantile_disc
    stddev stddev_samp stddev_pop var_samp var_pop variance corr covar_pop covar_samp regr_slope regr_intercept
    regr_r2 product any_value first last arg_min arg_max min_by max_by string_agg listagg group_concat list
    array_agg bool_or bool_and bit_and bit_or bit_xor kurtosis skewness entropy histogram approx_count_distinct
    """
)
"""Aggregates of DuckDB, which may be computed over public and released rows."""

_WINDOWS_AND_OTHERS = _words(
    """
    row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value random now
    current_date today current_timestamp typeof list_sort list_sum list_avg list_min list_max
    """
)
ORDINARY = _SCALARS | PLAIN_AGGREGATES | _WINDOWS_AND_OTHERS
"""Functions that may be called where all rows are public or released. They read nothing but their arguments."""

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest"})
"""Table functions that read nothing but their arguments."""

EXPRESSIONS = frozenset(
    {
        "COLUMN_REF",
        "CONSTANT",
        "PARAMETER",
        "FUNCTION",
        "COMPARISON",
        "CONJUNCTION",
        "OPERATOR",
        "CASE",
        "CAST",
        "BETWEEN",
    }
)
"""Kinds of expressions that read nothing but their columns."""

ChoiceKind = Literal["noisy_max", "noisy_min", "top_k"]

CHOICES: dict[str, ChoiceKind] = {
    "dp_noisy_max": "noisy_max",
    "dp_noisy_min": "noisy_min",
    "dp_top_k": "top_k",
}
"""Private choices among the values of a column."""

AGGREGATES: dict[str, type[Aggregate]] = {
    name: aggregate for aggregate in REGISTRY.values() for name in aggregate.sql_names
}
"""The private aggregates by their names in SQL."""

CUTS: dict[str, type[Aggregate]] = {"dp_cut_by_cap": CutByCap, "dp_cut_by_bounds": CutByBounds}
"""What caps and bounds cut off from the other private aggregates of a SELECT: the columns that `cut=True` adds."""

ENDS = {
    "dp_low": "low",
    "dp_high": "high",
    "dp_rank_error": "rank_error",
    "dp_rank_low": "rank_low",
    "dp_rank_high": "rank_high",
}
"""The columns that an interval adds to the answer of a private aggregate, as functions of the aggregate."""

PRIVATE = frozenset({*AGGREGATES, *CHOICES, *CUTS})
"""The SQL names of all private aggregates and choices."""
