"""The options of trtexec 11.1: which take a value, which mean nothing here, and why."""

from __future__ import annotations

from collections.abc import Mapping

FLAGS = frozenset(
    {
        "--continue",
        "--dryRun",
        "--excludeLeanRuntime",
        "--help",
        "--includeDataTransfers",
        "--noBuilderCache",
        "--noCudaGraph",
        "--noTF32",
        "--refit",
        "--sharedDevice",
        "--stripAllWeights",
        "--stripWeights",
        "--useCudaGraph",
        "--vc",
        "--versionCompatible",
    }
)
"""Options without a value that are understood; ``--sharedDevice`` is this project's own."""

VALUES = frozenset(
    {
        "--accuracyAlgorithm",
        "--accuracyThreshold",
        "--atol",
        "--avgTiming",
        "--backend",
        "--builderOptimizationLevel",
        "--device",
        "--hardwareCompatibilityLevel",
        "--loadInputs",
        "--loadRefOutputs",
        "--maxAuxStreams",
        "--maxShapes",
        "--maxTactics",
        "--memPoolSize",
        "--minShapes",
        "--onnx",
        "--optShapes",
        "--out",
        "--plugins",
        "--preview",
        "--refPair",
        "--rtol",
        "--saveEngine",
        "--setBuildRoute",
        "--shapes",
        "--sparsity",
        "--staticPlugins",
        "--tacticSources",
        "--tilingOptimizationLevel",
        "--tuneBuildRouteFile",
        "--tuneBuildRoutes",
        "--tuningCacheFile",
        "--tuningSearch",
        "--tuningTimeOut",
    }
)
"""Options with a value that are understood; ``--backend`` and ``--out`` are this project's own."""

MAYBE = frozenset({"--helpBuildRoute"})
"""Options that are understood and take a value only as ``--option=value``."""

REPEATABLE = frozenset(
    {"--loadInputs", "--loadRefOutputs", "--plugins", "--refPair", "--staticPlugins"}
)

DEFAULTS_HERE: Mapping[str, str] = {
    "--noDataTransfers": "times are of the device only, as they are by default",
    "--separateProfileRun": "nothing is profiled while routes are timed",
    "--stronglyTyped": "every network is strongly typed",
    "--useSpinWait": "it is the default",
    "--verbose": "what the library says is in the output folder, under logs",
}
"""Options without a value that ask for what happens anyway."""

_TIMING = "each route is timed in turns with the default route until the interval is tight"
_RUNS = "routes are timed with one inference at a time, all in the same way"
_TYPES = (
    "since TensorRT 11 the precision is that of the ONNX file; make a file of the other precision "
    "and search over both with `routewright tune --option variants=NAME:FILE`"
)
_BUILDS = "every route is built, checked and timed here"
_DLA = "there is no support for DLA"
_SAFE = "there is no support for safety-certified engines"
_SAME = "it would change what is built, and all routes are built for the same deployment"
_DEBUG = "marking tensors changes the engine that is timed"
_FILES = "the backend decides it, and every route is built alike"
_REPORTS = "`routewright show FOLDER` tells about the study"

REFUSED: Mapping[str, str] = {
    "--allocationStrategy": _RUNS,
    "--adjustForDLA": _DLA,
    "--allowGPUFallback": _DLA,
    "--allowWeightStreaming": _SAME,
    "--asyncFileReader": _BUILDS,
    "--avgRuns": _TIMING,
    "--batch": "it is gone; sizes are given with --shapes",
    "--best": _TYPES,
    "--bf16": _TYPES,
    "--buildDLAStandalone": _DLA,
    "--buildOnly": _BUILDS,
    "--calib": _TYPES,
    "--consistency": _SAFE,
    "--cpuOnly": _SAFE,
    "--decomposableAttentions": _SAME,
    "--directIO": _SAME,
    "--distributiveIndependence": _SAME,
    "--dumpKernelText": _SAFE,
    "--dumpLayerInfo": _REPORTS,
    "--dumpOptimizationProfile": _REPORTS,
    "--dumpOutput": _REPORTS,
    "--dumpProfile": _REPORTS,
    "--dumpRawBindingsToFile": _REPORTS,
    "--dumpRefit": _REPORTS,
    "--duration": _TIMING,
    "--dynamicPlugins": "give plugin libraries with --staticPlugins",
    "--enablePluginOverride": _SAME,
    "--errorOnTimingCacheMiss": _FILES,
    "--explicitBatch": "it is gone; every network has an explicit batch",
    "--exportLayerInfo": _REPORTS,
    "--exportOutput": _REPORTS,
    "--exportProfile": _REPORTS,
    "--exportTimes": _REPORTS,
    "--exposeDMA": _RUNS,
    "--fp16": _TYPES,
    "--fp8": _TYPES,
    "--getPlanVersionOnly": _BUILDS,
    "--idleTime": _TIMING,
    "--ignoreParsedPluginLibs": _SAME,
    "--infStreams": _RUNS,
    "--inputIOFormats": _SAME,
    "--int4": _TYPES,
    "--int8": _TYPES,
    "--iterations": _TIMING,
    "--l2LimitForTiling": "search the knob -config:l2_limit_for_tiling instead",
    "--layerDeviceTypes": _DLA,
    "--layerOutputTypes": _TYPES,
    "--layerPrecisions": _TYPES,
    "--leanDLLPath": _BUILDS,
    "--loadEngine": _BUILDS,
    "--markDebug": _DEBUG,
    "--markUnfusedTensorsAsDebugTensors": _DEBUG,
    "--maxBatch": "it is gone; sizes are given with --shapes",
    "--minTiming": "it is gone; --avgTiming is what is left",
    "--monitorMemory": _REPORTS,
    "--noCompilationCache": _FILES,
    "--noSpinWait": _RUNS,
    "--outputIOFormats": _SAME,
    "--percentile": _TIMING,
    "--persistentCacheRatio": _RUNS,
    "--pi": _SAME,
    "--pluginInstanceNorm": _SAME,
    "--precisionConstraints": _TYPES,
    "--profile": "one optimization profile is built; give --minShapes, --optShapes, --maxShapes",
    "--profilingVerbosity": _FILES,
    "--refitFromOnnx": _BUILDS,
    "--remoteAutoTuningConfig": _SAFE,
    "--reportCapabilityDLA": _DLA,
    "--runtimePlatform": _BUILDS,
    "--safe": _SAFE,
    "--safetyPlugins": _SAFE,
    "--saveAllDebugTensors": _DEBUG,
    "--saveAllEngines": "only the winner's engine is kept",
    "--saveDebugTensors": _DEBUG,
    "--setPluginsToSerialize": "use `routewright tune --option plugins_in_plan=on`",
    "--skipInference": _BUILDS,
    "--sleepTime": _TIMING,
    "--streams": _RUNS,
    "--tempdir": _FILES,
    "--tempfileControls": _FILES,
    "--threads": _RUNS,
    "--timeDeserialize": _BUILDS,
    "--timeRefit": _BUILDS,
    "--timingCacheFile": "there is one timing cache for each device and version; "
    "--noBuilderCache does without",
    "--tuningResultFile": "it is between trtexec and its own children",
    "--uint8AsymmetricQuantizationDLA": _DLA,
    "--useDLACore": _DLA,
    "--useManagedMemory": _RUNS,
    "--useProfile": "one optimization profile is built, and it is used",
    "--useRuntime": _BUILDS,
    "--warmUp": _TIMING,
    "--weightStreamingBudget": _SAME,
    "--workspace": "it is gone; give --memPoolSize=workspace:MIB",
}
"""Options that trtexec has or had and that mean nothing here, with the reason."""

KNOWN = (*sorted(FLAGS | VALUES | MAYBE), *DEFAULTS_HERE, *REFUSED)
"""Every option that is known by name."""
