"""trtexec's command line as settings of a tuning."""

from __future__ import annotations

from pathlib import Path

import pytest

from routewright.errors import RoutewrightError, SettingsError
from routewright.interop import trtexec_names
from routewright.interop.trtexec_options import UNLIMITED_S, Action, parse_trtexec
from routewright.settings import TuneSettings

MODEL = "--onnx=m.onnx"
ROUTES = "--tuneBuildRoutes=-a=[on|off] -b=2"


def settings_of(*words: str) -> TuneSettings:
    request = parse_trtexec([MODEL, *words])
    assert request.settings is not None
    return request.settings


def tuning(*words: str) -> TuneSettings:
    return settings_of(ROUTES, *words)


def notes_of(*words: str) -> str:
    return " ".join(parse_trtexec([MODEL, ROUTES, *words]).notes)


def test_a_whole_command_line() -> None:
    request = parse_trtexec(
        [
            "--onnx=m.onnx",
            "--tuneBuildRoutes=-a=[on|off] -b=2",
            "--tuningSearch=mixed",
            "--tuningTimeOut=300",
            "--tuningCacheFile=cache.json",
            "--saveEngine=m.plan",
            "--loadInputs=x:x.bin,mask:/data/mask.bin",
            "--loadRefOutputs=y:y.bin",
            "--accuracyAlgorithm=lInf",
            "--accuracyThreshold=1e-2",
            "--shapes=x:1x3x224x224,mask:1x16",
        ]
    )
    assert request.action is Action.TUNE
    assert request.settings == TuneSettings(
        model="m.onnx",
        backend="tensorrt",
        expr="-a=[on|off] -b=2",
        sampler="mixed",
        budget_s=300.0,
        samples=("x:x.bin", "mask:/data/mask.bin"),
        references=("y:y.bin",),
        loss="linf",
        bound=0.01,
        shape=("x:1x3x224x224", "mask:1x16"),
    )
    assert (request.cache, request.engine) == (Path("cache.json"), Path("m.plan"))
    assert request.notes == ()


def test_the_value_may_be_the_next_word() -> None:
    words = ["--onnx", "m.onnx", "--tuneBuildRoutes", "-a=[on|off] -b=2", "--tuningTimeOut", "9"]
    joined = ["--onnx=m.onnx", "--tuneBuildRoutes=-a=[on|off] -b=2", "--tuningTimeOut=9"]
    assert parse_trtexec(words) == parse_trtexec(joined)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--tuneBuildRoute=x", "'--tuneBuildRoutes'"),
        ("--tuningTimeout=9", "'--tuningTimeOut'"),
        ("--saveengine=x", "'--saveEngine'"),
        ("--shape=x:1", "'--shapes'"),
        ("--zzz", "known: "),
        ("-onnx=m.onnx", "two dashes"),
        ("m.onnx", "two dashes"),
    ],
)
def test_an_unknown_option_is_refused_with_what_is_close(word: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as caught:
        parse_trtexec([MODEL, ROUTES, word])
    assert word.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize("name", sorted(trtexec_names.REFUSED))
@pytest.mark.parametrize("value", ["", "=1"])
def test_an_option_without_meaning_is_refused_with_the_reason(name: str, value: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_trtexec([MODEL, ROUTES, name + value])
    assert str(caught.value) == f"{name} has no meaning here: {trtexec_names.REFUSED[name]}"


def test_every_option_is_known_in_one_way_only() -> None:
    kinds = [
        trtexec_names.FLAGS,
        trtexec_names.VALUES,
        trtexec_names.MAYBE,
        set(trtexec_names.DEFAULTS_HERE),
        set(trtexec_names.REFUSED),
    ]
    assert len(trtexec_names.KNOWN) == len(set(trtexec_names.KNOWN)) == sum(map(len, kinds))
    assert trtexec_names.REPEATABLE <= trtexec_names.VALUES


@pytest.mark.parametrize("name", sorted(trtexec_names.VALUES))
def test_an_option_that_needs_a_value_says_so(name: str) -> None:
    for words in ([name], [name, "--dryRun"]):
        with pytest.raises(SettingsError, match=f"{name} needs a value"):
            parse_trtexec(words)
    with pytest.raises(SettingsError, match=f"{name} is empty"):
        parse_trtexec([f"{name}="])


@pytest.mark.parametrize("name", sorted(trtexec_names.FLAGS | set(trtexec_names.DEFAULTS_HERE)))
def test_an_option_without_value_takes_none(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} takes no value, given: 'x'"):
        parse_trtexec([f"{name}=x"])


@pytest.mark.parametrize("name", sorted(trtexec_names.VALUES - trtexec_names.REPEATABLE))
def test_an_option_is_given_once(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is given twice"):
        parse_trtexec([f"{name}=1", f"{name}=1"])


@pytest.mark.parametrize("name", sorted(trtexec_names.DEFAULTS_HERE))
def test_what_happens_anyway_is_accepted_and_said(name: str) -> None:
    assert f"{name} changes nothing: " in notes_of(name)


def test_without_routes_there_is_nothing_to_tune() -> None:
    with pytest.raises(SettingsError, match="nothing to tune"):
        settings_of()
    with pytest.raises(SettingsError, match="--onnx is missing"):
        parse_trtexec([ROUTES])


@pytest.mark.parametrize(
    "pair",
    [
        ("--tuneBuildRoutes=-a=1", "--tuneBuildRouteFile=f"),
        ("--tuneBuildRoutes=-a=1", "--setBuildRoute=-a=1"),
        ("--tuneBuildRouteFile=f", "--setBuildRoute=-a=1"),
    ],
)
def test_routes_are_given_in_one_way(pair: tuple[str, str]) -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        settings_of(*pair)


def test_one_route_is_measured_as_an_expression_of_one() -> None:
    assert settings_of("--setBuildRoute=-a=on -b=2").expr == "-a=on -b=2"


def test_a_route_file_is_passed_on_or_joined_with_pinned_knobs(tmp_path: Path) -> None:
    file = tmp_path / "routes.txt"
    file.write_text("# two knobs\n-a=[on|off]\n-b=2\n")
    assert settings_of(f"--tuneBuildRouteFile={file}").expr_file == str(file)
    joined = settings_of(f"--tuneBuildRouteFile={file}", "--noTF32")
    assert joined.expr_file is None
    assert joined.expr == "-a=[on|off] -b=2 -config:tf32=off"
    with pytest.raises(RoutewrightError, match="cannot read"):
        settings_of(f"--tuneBuildRouteFile={tmp_path / 'none'}", "--noTF32")


@pytest.mark.parametrize(("word", "search"), [("", "fast"), ("fast", "fast"), ("full", "full")])
def test_search(word: str, search: str) -> None:
    assert tuning(*([f"--tuningSearch={word}"] if word else [])).sampler == search


def test_our_own_search_methods_need_a_time_out() -> None:
    with pytest.raises(SettingsError, match="--tuningSearch=auto needs --tuningTimeOut"):
        tuning("--tuningSearch=auto")
    assert tuning("--tuningSearch=auto", "--tuningTimeOut=60").sampler == "auto"
    with pytest.raises(SettingsError, match="there is no sampler 'fats'; did you mean fast"):
        tuning("--tuningSearch=fats")


@pytest.mark.parametrize("value", [None, "-1", "0"])
def test_without_time_out_the_search_ends_by_itself(value: str | None) -> None:
    words = [] if value is None else [f"--tuningTimeOut={value}"]
    assert tuning(*words).budget_s == UNLIMITED_S
    assert "the search goes on to its end" in notes_of(*words)


@pytest.mark.parametrize("value", ["5m", "nan", "inf", "--"])
def test_a_time_out_is_a_number(value: str) -> None:
    with pytest.raises(SettingsError, match="--tuningTimeOut"):
        tuning("--tuningTimeOut", value)


@pytest.mark.parametrize(
    ("words", "loss", "bound"),
    [
        ([], None, None),
        (["--accuracyThreshold=0.5"], "l0", 0.5),
        (["--accuracyThreshold=1e-3", "--accuracyAlgorithm=cos"], "cos", 1e-3),
        (["--accuracyThreshold=1", "--accuracyAlgorithm=lInf"], "linf", 1.0),
        (["--accuracyThreshold=1", "--accuracyAlgorithm=l1"], "l1", 1.0),
        (["--accuracyThreshold=1", "--accuracyAlgorithm=l2"], "l2", 1.0),
    ],
)
def test_accuracy(words: list[str], loss: str | None, bound: float | None) -> None:
    settings = tuning(*words)
    assert (settings.loss, settings.bound) == (loss, bound)
    assert ("no --accuracyThreshold" in notes_of(*words)) == (bound is None)


def test_tolerances_go_with_l0() -> None:
    settings = tuning("--accuracyThreshold=0.1", "--atol=1e-3", "--rtol=1e-4")
    assert (settings.atol, settings.rtol) == (1e-3, 1e-4)
    for words in (["--accuracyAlgorithm=l1", "--accuracyThreshold=1"], []):
        with pytest.raises(SettingsError, match="tolerances of the l0 loss"):
            tuning("--atol=1e-3", *words)


def test_a_threshold_of_0_means_another_thing_than_in_trtexec() -> None:
    assert tuning("--accuracyThreshold=0").bound == 0.0
    assert "asks for identical outputs, unlike in trtexec" in notes_of("--accuracyThreshold=0")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--accuracyAlgorithm=linf", "--accuracyThreshold=1"], "did you mean 'lInf'"),
        (["--accuracyAlgorithm=l1"], "--accuracyAlgorithm needs --accuracyThreshold"),
        (["--loadInputs=x:f", "--loadRefOutputs=y:f"], "--loadRefOutputs needs --accuracyThresh"),
        (["--loadRefOutputs=y:f", "--accuracyThreshold=1"], "--loadRefOutputs needs --loadInputs"),
        (["--accuracyThreshold=-1"], "at least 0, not '-1'"),
        (["--accuracyThreshold=nan"], "at least 0, not 'nan'"),
        (["--loadInputs=x.bin"], "'x.bin' is not of the form name:file"),
        (["--loadInputs=x:"], "'x:' is not of the form name:file"),
        (["--loadInputs=x:a", "--loadInputs=x:b"], "several pairs need --refPair"),
    ],
)
def test_accuracy_options_that_contradict(words: list[str], told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        tuning(*words)


def test_pairs_of_inputs_and_references_are_samples_in_order() -> None:
    settings = tuning(
        "--refPair=0", "--loadInputs=x:x0.bin", "--loadRefOutputs=y:y0.bin",
        "--refPair=1", "--loadInputs=x:x1.bin", "--loadRefOutputs=y:y1.bin",
        "--accuracyThreshold=0.1",
    )  # fmt: skip
    assert settings.samples == ("x:x0.bin", "x:x1.bin")
    assert settings.references == ("y:y0.bin", "y:y1.bin")


def test_names_in_quotes_may_hold_colons_and_commas() -> None:
    settings = tuning("--loadInputs='in:0':a.bin, 'b,c':d.bin", "--shapes='in:0':1x3,'b,c':2")
    assert settings.samples == ("in:0:a.bin", "b,c:d.bin")
    assert settings.shape == ("in:0:1x3", "b,c:2")


def test_shapes() -> None:
    settings = tuning("--minShapes=x:1x8,n:", "--optShapes=x:4x8,n:", "--maxShapes=x:8x8,n:")
    assert settings.min_shape == ("x:1x8", "n:scalar")
    assert settings.shape == ("x:4x8", "n:scalar")
    assert settings.max_shape == ("x:8x8", "n:scalar")
    assert tuning("--shapes=1x3x8").shape == ("1x3x8",)
    assert tuning("--shapes=x:4x8", "--optShapes=x:4x8").shape == ("x:4x8",)
    with pytest.raises(SettingsError, match="--shapes and --optShapes differ"):
        tuning("--shapes=x:2x8", "--optShapes=x:4x8")
    with pytest.raises(SettingsError, match="has a wildcard"):
        tuning("--shapes=*:4x8")


@pytest.mark.parametrize(
    ("word", "pin"),
    [
        ("--builderOptimizationLevel=5", "-config:builder_optimization_level=5"),
        ("--maxAuxStreams=0", "-config:max_aux_streams=0"),
        ("--maxAuxStreams=-1", "-config:max_aux_streams=auto"),
        ("--avgTiming=8", "-config:avg_timing_iterations=8"),
        ("--maxTactics=16", "-config:max_num_tactics=16"),
        ("--tilingOptimizationLevel=3", "-config:tiling_optimization_level=full"),
        ("--noTF32", "-config:tf32=off"),
        ("--sparsity=enable", "-config:sparse_weights=on"),
        ("--sparsity=disable", "-config:sparse_weights=off"),
        ("--useCudaGraph", "-runtime:cuda_graph=on"),
        ("--noCudaGraph", "-runtime:cuda_graph=off"),
        ("--tacticSources=-JIT_CONVOLUTIONS", "-config:tactic_source_jit_convolutions=off"),
        (
            "--preview=+runtimeActivationResize",
            "-config:preview_runtime_activation_resize_10_10=on",
        ),
    ],
)
def test_builder_options_are_pinned_knobs(word: str, pin: str) -> None:
    assert tuning(word).expr == f"-a=[on|off] -b=2 {pin}"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("--builderOptimizationLevel=high", "must be a number"),
        ("--builderOptimizationLevel=1.5", "must be a whole number"),
        ("--tilingOptimizationLevel=4", "must be 0 to 3, not 4"),
        ("--sparsity=force", "must be enable or disable here, not 'force'"),
        ("--tacticSources=JIT_CONVOLUTIONS", "must start with [+] or -"),
        ("--preview=+runtimeActivation", "did you mean 'runtimeActivationResize'"),
        ("--memPoolSize=dlaSRAM:1", "must be workspace:SIZE here"),
        ("--memPoolSize=workspace:many", "is no size"),
        ("--memPoolSize=workspace:0", "is no size"),
        ("--hardwareCompatibilityLevel=all", "must be none, ampere"),
        ("--device=gpu", "must be a number"),
    ],
)
def test_a_value_that_an_option_has_not_is_refused(word: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told) as caught:
        tuning(word)
    assert word.partition("=")[0] in str(caught.value)


@pytest.mark.parametrize(
    ("word", "option"),
    [
        ("--device=1", "device=1"),
        ("--memPoolSize=workspace:4096", "workspace_mib=4096"),
        ("--memPoolSize=workspace:4G", "workspace_mib=4096"),
        ("--memPoolSize=workspace:1024MiB", "workspace_mib=1024"),
        ("--memPoolSize=workspace:2097152K", "workspace_mib=2048"),
        ("--memPoolSize=workspace:4194304B", "workspace_mib=4"),
        ("--hardwareCompatibilityLevel=ampere+", "hardware_compatibility=ampere_plus"),
        (
            "--hardwareCompatibilityLevel=sameComputeCapability",
            "hardware_compatibility=same_compute_capability",
        ),
        ("--versionCompatible", "version_compatible=on"),
        ("--vc", "version_compatible=on"),
        ("--excludeLeanRuntime", "exclude_lean_runtime=on"),
        ("--refit", "refit=all"),
        ("--stripWeights", "strip_plan=on"),
        ("--noBuilderCache", "timing_cache=off"),
        ("--includeDataTransfers", "host_transfers=on"),
    ],
)
def test_what_concerns_every_build_is_an_option_of_the_backend(word: str, option: str) -> None:
    assert tuning(word).option == (option,)


def test_the_backend_s_options_are_options_that_it_has(tmp_path: Path) -> None:
    from routewright.backends.tensorrt.options import Options

    plugin = tmp_path / "p.so"
    plugin.touch()
    settings = tuning(
        "--device=1", "--memPoolSize=workspace:1G", "--hardwareCompatibilityLevel=ampere+", "--vc",
        "--excludeLeanRuntime", "--stripAllWeights", "--noBuilderCache", "--includeDataTransfers",
        f"--staticPlugins={plugin}", f"--plugins={plugin}",
    )  # fmt: skip
    options = Options.parse(settings.backend_options())
    assert options.workspace_mib == 1024
    assert options.plugins == (plugin, plugin)
    assert (options.refit, options.strip_plan) == ("all", True)


def test_own_options() -> None:
    settings = tuning("--backend=onnxruntime", "--out=folder", "--sharedDevice")
    assert settings.backend == "onnxruntime"
    assert settings.out == "folder"
    assert settings.shared_device


def test_dry_run() -> None:
    request = parse_trtexec([MODEL, ROUTES, "--dryRun", "--tuningSearch=full"])
    assert (request.action, request.search) == (Action.DRY_RUN, "full")
    for search in ("mixed", "random"):
        with pytest.raises(SettingsError, match="--dryRun lists the routes of fast and full"):
            parse_trtexec(
                [MODEL, ROUTES, "--dryRun", f"--tuningSearch={search}", "--tuningTimeOut=9"]
            )


@pytest.mark.parametrize(
    ("words", "knob"), [(["--helpBuildRoute"], None), (["--helpBuildRoute=-a:b"], "-a:b")]
)
def test_help_on_knobs(words: list[str], knob: str | None) -> None:
    request = parse_trtexec([*words, "--backend=onnxruntime"])
    assert request.action is Action.LIST_KNOBS
    assert (request.knob, request.backend) == (knob, "onnxruntime")


def test_help() -> None:
    for word in ("--help", "-h"):
        assert parse_trtexec([word]).action is Action.HELP


def test_going_on_takes_the_cache_only() -> None:
    request = parse_trtexec(["--continue", "--tuningCacheFile=c.json", "--tuningTimeOut=600"])
    assert request.action is Action.CONTINUE
    assert (request.cache, request.budget_s) == (Path("c.json"), 600.0)
    with pytest.raises(SettingsError, match="--continue needs --tuningCacheFile"):
        parse_trtexec(["--continue"])
    with pytest.raises(SettingsError, match="leave --onnx, --tuneBuildRoutes out"):
        parse_trtexec(["--continue", "--tuningCacheFile=c.json", MODEL, ROUTES])
    with pytest.raises(SettingsError, match="at least 1"):
        parse_trtexec(["--continue", "--tuningCacheFile=c.json", "--tuningTimeOut=-1"])
