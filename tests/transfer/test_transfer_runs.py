from __future__ import annotations

from conftest import ROOT
from routewright.transfer.conditions import Condition
from routewright.transfer.runs import Arrival, Search, carry_out_search, setup_of

DET = str(ROOT / "studies" / "tables" / "ppocr-v4-det")
CLS = str(ROOT / "studies" / "tables" / "ppocr-v2-cls")
BYTES = str(ROOT / "studies" / "tables" / "magika-v3")


def search(condition: Condition, *, trials: int = 6) -> Search:
    return Search(DET, condition, 0, trials, "auto")


def test_a_cold_start_does_not_depend_on_the_other_tables() -> None:
    cold, warm = search(Condition.COLD), search(Condition.MODEL_OUT)
    assert setup_of(cold, [DET, CLS]) == setup_of(cold, [DET, CLS, BYTES])
    assert setup_of(warm, [DET, CLS]) != setup_of(warm, [DET, CLS, BYTES])
    assert setup_of(cold, [DET]) != setup_of(search(Condition.COLD, trials=7), [DET])


def test_a_search_goes_the_same_way_again_and_tells_how_it_went() -> None:
    tables = (DET, CLS)
    one = carry_out_search(search(Condition.MODEL_OUT), tables)
    assert one == carry_out_search(search(Condition.MODEL_OUT), tables)
    assert one.table == "ppocr-v4-det"
    assert one.builds <= 6
    assert one.tried <= one.suggested
    assert Arrival.from_json(one.to_json()) == one
    cold = carry_out_search(search(Condition.COLD), tables)
    assert (cold.suggested, cold.sources) == (0, 0)


def test_a_line_that_is_cut_off_is_no_arrival() -> None:
    assert Arrival.from_json('{"table": "t"') is None
    assert Arrival.from_json('{"table": "t"}') is None
