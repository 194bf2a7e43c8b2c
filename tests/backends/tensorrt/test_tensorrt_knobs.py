from __future__ import annotations

import json

from trt_double import KNOB_COUNT, build_routes_json

from routewright.backends.tensorrt.config_knobs import ConfigKnob
from routewright.backends.tensorrt.knobs import (
    ORIGINAL,
    hidden_settings,
    knob_database,
    split_route,
)
from routewright.backends.tensorrt.library import Capabilities
from routewright.space import SearchSpace

LEVEL = ConfigKnob("-config:level", "3", ("1", "3", "5"), "How hard.", lambda config, value: None)


def capabilities(build_routes: str = "", *, times_tactics: bool = True) -> Capabilities:
    return Capabilities(build_routes, "", times_tactics, False, (), False, False)


def test_the_double_lists_as_many_knobs_as_the_real_library() -> None:
    options = json.loads(build_routes_json())["tuner_options"]
    assert len(options) == KNOB_COUNT == len({option["option"] for option in options})


def test_one_database_holds_all_kinds_with_their_defaults() -> None:
    database = knob_database(
        capabilities(build_routes_json()),
        (LEVEL,),
        source="the double",
        variants=("int8", "fp16"),
        dynamic_shapes=True,
        specializations=("LAZY", "EAGER"),
    )
    assert len(database) == KNOB_COUNT + 4
    assert database["-config:level"].default == "3"
    assert database["-config:level"].ordered
    assert database["-runtime:cuda_graph"].values == ("off", "on")
    assert database["-runtime:dynamic_shapes_kernels"].default == "lazy"
    assert database["-model:variant"].values == (ORIGINAL, "fp16", "int8")
    assert database["-kgen:codegen:cuda_tile"].notation == "[0|1|2|3]"
    space = SearchSpace.whole(database)
    assert {"-config:level", "-runtime:cuda_graph", "-model:variant"} <= set(space.variable)


def test_knobs_that_do_not_apply_are_left_out() -> None:
    database = knob_database(
        capabilities(),
        (),
        source="none",
        variants=(),
        dynamic_shapes=False,
        specializations=("LAZY",),
    )
    assert [knob.name for knob in database] == ["-runtime:cuda_graph"]


def test_a_route_is_split_by_kind_and_order_is_kept() -> None:
    split = split_route(
        {
            "-b": "1",
            "-config:level": "5",
            "-a": "2",
            "-runtime:cuda_graph": "on",
            "-model:variant": "fp16",
        }
    )
    assert split.build_route_text == "-b=1 -a=2"
    assert split.config == {"-config:level": "5"}
    assert split.runtime == {"-runtime:cuda_graph": "on"}
    assert split.variant == "fp16"
    assert split_route({}).variant == ORIGINAL


def test_settings_that_do_not_show_in_layers_are_part_of_a_fingerprint() -> None:
    split = split_route(
        {
            "-cask_fusion:num_tactics": "4",
            "-kgen:tiling": "2",
            "-config:level": "5",
            "-config:tf32": "off",
            "-runtime:cuda_graph": "on",
        }
    )
    assert hidden_settings(split, capabilities()) == {
        "-runtime:cuda_graph": "on",
        "-config:level": "5",
        "-config:tf32": "off",
        "-cask_fusion:num_tactics": "4",
    }
    assert hidden_settings(split, capabilities(times_tactics=False)) == {
        "-runtime:cuda_graph": "on",
        "-config:tf32": "off",
    }
