"""Reading tuning caches, whole and broken."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from interop_caches import CRASH, fast_rows, header, row, write

from routewright.interop import cache_file
from routewright.interop.cache_file import CacheFileError, read_cache, write_cache


def read(path: Path, *lines: str, end: str = "\n") -> cache_file.CacheFile:
    return read_cache(write(path / "cache.json", lines, end))


def test_rows_and_header_are_read(tmp_path: Path) -> None:
    cache = read(tmp_path, header(), *fast_rows())
    assert cache.header["tuner_version"] == "2.19.45"
    assert cache.header_text == header()
    assert [each.iteration for each in cache.rows] == [0, 1, 2, 3]
    assert [each.text for each in cache.rows] == fast_rows()
    assert [each.gpu_time_ms for each in cache.rows] == [2.0, 1.5, 1.0, None]
    assert cache.rows[2].losses == {"y": 0.25}
    assert cache.rows[3].crashed
    assert cache.rows[3].error == CRASH
    assert cache.notes == ()


def test_truncated_last_line_is_named_and_skipped(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text("\n".join([header(), *fast_rows()]) + "\n" + row(4, "-a=off -b=0")[:50])
    cache = read_cache(path)
    assert len(cache.rows) == 4
    assert cache.notes == ("line 6: skipped: the last line is cut off, as its writer was killed",)


def test_whole_last_line_without_its_end_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "cache.json"
    path.write_text("\n".join([header(), *fast_rows()]))
    assert len(read_cache(path).rows) == 4
    assert read_cache(path).notes == ()


def test_broken_lines_in_the_middle_are_named_and_skipped(tmp_path: Path) -> None:
    rows = fast_rows()
    cache = read(tmp_path, header(), rows[0], '{"iter":1,"build', "", "[1]", *rows[1:], "nonsense")
    assert [each.text for each in cache.rows] == rows
    assert len(cache.notes) == 3
    assert cache.notes[0].startswith("line 3: skipped: it is not JSON")
    assert cache.notes[1] == "line 5: skipped: it is no JSON object"
    # It has its line end, so it was not cut off.
    assert cache.notes[2].startswith("line 9: skipped: it is not JSON")


def test_the_same_remark_on_many_lines_is_one_note(tmp_path: Path) -> None:
    cache = read(tmp_path, header(), *(row(index, "-a=on", 0.0) for index in range(9)))
    assert cache.notes == (
        "lines 2, 3, 4, 5, 6 and 4 more: gpu_time is 0, which is no time; read as not timed",
    )
    assert all(each.gpu_time_ms is None for each in cache.rows)


@pytest.mark.parametrize("end", ["\r\n", "\n\n", "  \n"])
def test_other_line_ends_are_passed_over(tmp_path: Path, end: str) -> None:
    cache = read(tmp_path, header(), *fast_rows(), end=end)
    assert [json.loads(each.text) for each in cache.rows] == [json.loads(r) for r in fast_rows()]
    assert cache.notes == ()


def test_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    cache = read(tmp_path, "\ufeff" + header(), *fast_rows())
    assert cache.header_text == header()
    assert cache.notes == ()


def test_a_file_without_header_says_so(tmp_path: Path) -> None:
    cache = read(tmp_path, *fast_rows())
    assert cache.header_text is None
    assert len(cache.rows) == 4
    assert cache.notes == ("line 1: a row, although the first line should be the header",)


def test_a_broken_header_says_so(tmp_path: Path) -> None:
    cache = read(tmp_path, header()[:60], *fast_rows())
    assert cache.header_text is None
    assert len(cache.rows) == 4
    assert "if it was the header, its settings are lost" in cache.notes[0]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"\n\n  \n", "is empty"),
        (b"\xef\xbb\xbf", "is empty"),
        (header().encode() + b"\n", "holds a header but no row yet"),
        (header().encode()[:40], "no tuning cache with a row that can be used"),
        (b"\x00\x01\x02\xff" * 100, "it is not UTF-8 text"),
        (gzip.compress(header().encode()), "is compressed; unpack it first"),
        (b"[\n1\n]\n", "it is not JSON"),
        (b'{"a": 1}\n{"b": 2}\n', "it names no build_route"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"iter":' + b"9" * 5000 + b"}", "a number too long"),
    ],
)
def test_a_file_without_rows_is_one_clear_error(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "cache.json"
    path.write_bytes(content)
    with pytest.raises(CacheFileError, match=told) as caught:
        read_cache(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_path_that_cannot_be_read_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(CacheFileError, match="cannot read the tuning cache"):
        read_cache(tmp_path / "none.json")
    with pytest.raises(CacheFileError, match="cannot read the tuning cache"):
        read_cache(tmp_path)
    with pytest.raises(CacheFileError, match="cannot read the tuning cache"):
        read_cache(tmp_path / "a\0b")


def test_a_gigantic_line_is_skipped_without_holding_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_file, "MOST_LINE_BYTES", 2**20)
    cache = read(tmp_path, header(), "x" * 3 * 2**20, *fast_rows(), "y" * 2 * 2**20)
    assert len(cache.rows) == 4
    assert cache.notes == ("lines 2, 7: skipped: longer than 1 MiB, which no row is",)


@pytest.mark.parametrize("value", ['"fast"', "true", "[1.0]", "{}"])
def test_a_time_of_another_type_is_no_time(tmp_path: Path, value: str) -> None:
    text = row(0, "-a=on", 1.0).replace('"gpu_time":1.0', f'"gpu_time":{value}')
    cache = read(tmp_path, header(), text)
    assert cache.rows[0].gpu_time_ms is None
    assert cache.notes == ("line 2: gpu_time is no number; read as not timed",)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "-1.0", "0", "1" + "0" * 400])
def test_a_time_that_cannot_be_is_no_time(tmp_path: Path, value: str) -> None:
    text = row(0, "-a=on", 1.0).replace('"gpu_time":1.0', f'"gpu_time":{value}')
    cache = read(tmp_path, header(), text)
    assert cache.rows[0].gpu_time_ms is None
    assert "which is no time" in cache.notes[0]


def test_losses_that_are_no_numbers_are_infinite_or_left_out(tmp_path: Path) -> None:
    text = row(0, "-a=on", losses={"a": None, "b": 1.0, "c": "x"}).replace("1.0", "NaN", 1)
    cache = read(tmp_path, header(), text)
    assert cache.rows[0].losses == {"a": math.inf, "b": math.inf}
    assert cache.notes == ("line 2: a loss is no number; left out",)
    cache = read(tmp_path, header(), row(0, "-a=on", losses=[0.1]))
    assert cache.rows[0].losses == {}
    assert cache.notes == ("line 2: accuracy_loss is no object of outputs; left out",)


def test_missing_keys_are_read_from_what_is_there(tmp_path: Path) -> None:
    cache = read(
        tmp_path,
        header(),
        '{"build_route":"-a=on","gpu_time":1.5}',
        '{"build_route":"-a=off"}',
        '{"build_route":7,"gpu_time":1.5}',
        '{"build_route":"","crash":"no","gpu_time":2,"iter":true,"error_message":[]}',
    )
    assert [(each.route, each.crashed) for each in cache.rows] == [
        ("-a=on", False),
        ("-a=off", True),
        ("", False),
    ]
    assert all(each.iteration is None for each in cache.rows)
    assert "line 4: skipped: it names no build_route" in cache.notes
    assert "line 5: error_message is no text; left out" in cache.notes


def test_halves_of_characters_do_not_reach_a_terminal(tmp_path: Path) -> None:
    cache = read(tmp_path, header(), row(0, "-a=on").replace("-a=on", "-a=\\ud800"))
    cache.rows[0].route.encode()
    assert cache.rows[0].text.count("\\ud800") == 1


def test_written_lines_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    write_cache(path, [header(tuner_version="é"), *fast_rows()])
    assert path.read_bytes().endswith(b"}\n")
    assert [each.text for each in read_cache(path).rows] == fast_rows()
    assert sorted(tmp_path.iterdir()) == [path]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400), cut=st.integers(0, 400), at=st.integers(0, 300))
def test_no_bytes_bring_the_reader_down(tmp_path: Path, content: bytes, cut: int, at: int) -> None:
    whole = "\n".join([header(), *fast_rows()]).encode()
    path = tmp_path / "cache.json"
    for data in (content, whole[:at] + content + whole[at + cut :]):
        path.write_bytes(data)
        with contextlib.suppress(CacheFileError):
            assert read_cache(path).rows
