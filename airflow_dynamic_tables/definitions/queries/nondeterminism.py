"""Detection of nondeterministic queries by an allowlist of functions.

Unspecified results do not count: which rows a LIMIT without an order returns, the value of ``first``, the order of ties. Rows
that were correct once stay correct. Counted is what is meant to differ between runs: random values, the current user, the files
that are read, and the time unless it is bound.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from airflow_dynamic_tables.core.refresh.plan import BoundTime
from airflow_dynamic_tables.definitions.queries.dialect import SparkSQL
from airflow_dynamic_tables.definitions.queries.times import STRINGS

_STEADY_WORDS = """
abs acos acosh add_months aes_decrypt aggregate any any_value approx_count_distinct approx_percentile array array_agg
array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join array_max
array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union arrays_overlap arrays_zip
ascii asin asinh assert_true atan atan2 atanh avg base64 bigint bin binary bit_and bit_count bit_get bit_length bit_or
bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and
bool_or boolean bround btrim cardinality cast cbrt ceil ceiling char char_length character_length chr coalesce collate
collation collect_list collect_set concat concat_ws contains conv convert_timezone corr cos cosh cot count count_if
count_min_sketch covar_pop covar_samp crc32 csc cume_dist date date_add date_diff date_format date_from_unix_date date_part
date_sub date_trunc dateadd datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees dense_rank
double e element_at elt encode endswith equal_null every exists exp explode explode_outer expm1 extract factorial filter
find_in_set first first_value flatten float floor forall format_number format_string from_avro from_csv from_json
from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest grouping grouping_id hash hex
histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hour hypot if ifnull initcap inline
inline_outer instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull json_array_length
json_object_keys json_tuple kurtosis lag last last_day last_value lcase lead least left len length levenshtein listagg ln
locate log log10 log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time make_timestamp
make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat map_contains_key map_entries
map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask max max_by md5 mean median min min_by
minute mod mode month monthname months_between named_struct nanvl negative next_day nth_value ntile nullif nullifzero nvl
nvl2 octet_length overlay parse_json parse_url percent_rank percentile percentile_approx percentile_cont percentile_disc pi
pmod posexplode posexplode_outer position positive pow power printf quarter quote radians range rank reduce regexp_count
regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count
regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint round row_number rpad rtrim
schema_of_avro schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg schema_of_xml sec second sentences
sequence session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned sign signum sin sinh size skewness slice
smallint some sort_array soundex space split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr substring substring_index sum
tan tanh time time_bucket time_diff time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis
time_to_seconds time_trunc timestamp timestamp_micros timestamp_millis timestamp_seconds tinyint to_avro to_binary to_char
to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp
to_varchar to_variant_object to_xml transform transform_keys transform_values translate trim trunc try_add try_aes_decrypt
try_avg try_divide try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod
try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time
try_to_timestamp try_url_decode try_validate_utf8 try_variant_get typeof ucase unbase64 unhex unix_date unix_micros
unix_millis unix_seconds unix_timestamp upper url_decode url_encode validate_utf8 var_pop var_samp variance variant_explode
variant_explode_outer variant_get vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
vector_normalize vector_sum weekday weekofyear width_bucket window window_time xpath xpath_boolean xpath_double xpath_float
xpath_int xpath_long xpath_number xpath_short xpath_string xxhash64 year zeroifnull zip_with
"""
_STEADY = frozenset(_STEADY_WORDS.split())
"""Functions of Spark 4 whose value depends only on their arguments and on the rows."""

_SYNTAX_WORDS = """
all and anti any apply array as asc between broadcast broadcastjoin by case char character coalesce columns cross cube dec
decimal desc distinct div else end escape except exclude exists filter following for from full group having if ilike in
include inner intersect interval into is join lateral left like limit map mapjoin merge minus natural not null nulls numeric
of offset on or order outer over partition pivot preceding qualify rebalance recursive regexp repartition
repartition_by_range right rlike rollup rows select semi set sets shuffle_hash shuffle_merge shuffle_replicate_nl some
struct then timestamp_ltz timestamp_ntz timestampadd timestampdiff try_cast union unpivot using values varchar when where
window with within
"""
_SYNTAX = frozenset(_SYNTAX_WORDS.split())
"""Words before a parenthesis that are not functions: keywords, types with a length, hints."""

_WITHOUT_PARENTHESES = frozenset(
    {
        "current_date",
        "current_time",
        "current_timestamp",
        "current_user",
        "localtime",
        "localtimestamp",
        "session_user",
        "tablesample",
        "user",
    }
)
"""Functions that Spark calls without parentheses; a column of that name must be qualified by its table."""

_ALWAYS_OF_ARGUMENTS = frozenset({"unix_timestamp", "to_unix_timestamp"})
"""Functions that return the current time without an argument."""

_TIME_OF_RUN = re.compile(r"\s*(?:(?:now|today|tomorrow|yesterday)(?:\s+\S+)?|t?\d{1,2}:\d{1,2}\S*(?:\s+\S+)?)\s*", re.IGNORECASE)
"""Literals that Spark resolves by the clock: ``today``, and a time of day, which is of the day of the run."""

_WORD = re.compile(r"\w+")
_NAMES_WHAT_FOLLOWS = frozenset({"as", "with"})


def variation(
    query: str, predicates: Iterable[str] = (), *, times: Iterable[BoundTime] = (), steady: Collection[str] = ()
) -> str | None:
    """See :func:`airflow_dynamic_tables.definitions.queries.text.variation`."""
    bound = {place for time in times for place in range(time.start, time.end)}
    of_query = _reasons(query, bound, frozenset(name.lower() for name in steady))
    return next(of_query, None) or next((reason for text in predicates for reason in _reasons(text)), None)


def _reasons(text: str, bound: Collection[int] = (), steady: Collection[str] = ()) -> Iterator[str]:
    try:
        tokens = list(SparkSQL().tokenize(text))
    except TokenError:
        yield "what it says cannot be read"
        return
    for number, token in enumerate(tokens):
        if token.start in bound:
            continue
        if token.token_type in STRINGS:
            if _TIME_OF_RUN.fullmatch(token.text):
                yield f"'{token.text}' may mean a time that the clock decides"
        elif token.token_type is TokenType.IDENTIFIER or (
            token.token_type is not TokenType.NUMBER and _WORD.fullmatch(token.text)
        ):
            yield from _reasons_of_word(tokens, number, steady)


def _reasons_of_word(tokens: Sequence[Token], number: int, steady: Collection[str]) -> Iterator[str]:
    word = tokens[number].text.lower()
    before = tokens[number - 1].text.lower() if number else ""
    after = [token.token_type for token in tokens[number + 1 : number + 3]]
    if before == ".":
        if after[:1] == [TokenType.L_PAREN]:
            yield f"{word}() of a catalog is not known to be deterministic"
    elif word in _WITHOUT_PARENTHESES:
        yield f"{word.upper()} may be another one each time"
    elif after[:1] != [TokenType.L_PAREN] or before in _NAMES_WHAT_FOLLOWS or word in _SYNTAX or word in steady:
        return
    elif word not in _STEADY or (word in _ALWAYS_OF_ARGUMENTS and after[1:] == [TokenType.R_PAREN]):
        yield f"{word}() is not known to give the same each time"
