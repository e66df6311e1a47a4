from pathlib import Path

import pytest
import yaml

from projection.calibration import shipped_calibration
from projection.profiles import gpu_profile
from schemas.cluster import MemoryOverheads, MoeImbalance, Stack
from schemas.errors import ClusterError
from schemas.search import AxisToggles, Budget
from tasks.calibrate.calibration_file import calibration_yaml
from tasks.resolve import resolve_cluster

GUIDE = """
target_cluster:
  name: mi355x_4nodes
  num_nodes: 4
  gpus_per_node: 8
  gpu_arch: mi355x
  hardware_config: examples/hardware_configs/mi355x.yaml
  gpu_clock_mhz: null
available_for_benchmark:
  has_gpu: true
  benchmark_gpus: 8
  benchmark_arch: mi355x
optimization:
  objective: tokens_per_s_per_gpu
  memory_safety_margin: 0.10
  hbm_capacity_gb: 288.0
  budget:
    max_proposals: 31
    max_perf_calls: 32
    max_benchmark_calls: 12
    max_rounds: 9
    max_rlm_iterations: 33
  axes:
    tp: true
    pp: false
    ep: true
    cp: true
    mbs: true
    gbs: true
    vpp: false
    pp_schedule: true
    recompute: true
    overlap_grad_reduce: true
agent:
  llm:
    model: anthropic/claude-opus-4-5
    api_key: sk-ant-very-secret-key
    base_url: https://me:hunter2@example.org/v1
  prompt_extras:
    - "Prefer keeping EP within a single node when possible."
"""


def refusal(cluster, text: str) -> str:
    with pytest.raises(ClusterError) as caught:
        cluster(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_guides_file_in_full(cluster) -> None:
    resolved = cluster(GUIDE)
    target = resolved.cluster
    assert (target.name, target.world_size, target.gpu.name) == ("mi355x_4nodes", 32, "mi355x")
    assert target.network.node_bw == 537.6
    assert target.cap_gb == pytest.approx(259.2)
    assert resolved.benchmark.has_gpu
    assert (resolved.benchmark.benchmark_gpus, resolved.benchmark.benchmark_arch) == (8, "mi355x")
    assert resolved.search.budget == Budget(
        max_proposals=31,
        max_perf_calls=32,
        max_benchmark_calls=12,
        max_rounds=9,
        max_rlm_iterations=33,
    )
    assert resolved.search.axes == AxisToggles(
        pp=False, vpp=False, gbs=True, overlap_grad_reduce=True
    )
    assert resolved.llm.model == "anthropic/claude-opus-4-5"
    assert resolved.llm.api_key is not None
    assert resolved.llm.api_key.get_secret_value() == "sk-ant-very-secret-key"
    assert resolved.search.prompt_extras[0].startswith("Prefer keeping EP")
    assert resolved.warnings == ()


@pytest.mark.parametrize(
    "text", ["target_cluster:\n", "target_cluster: {}\n", "optimization: {}\n"]
)
def test_an_empty_file_has_every_default_of_the_guide(cluster, text: str) -> None:
    resolved = cluster(text)
    target = resolved.cluster
    assert (target.num_nodes, target.gpus_per_node, target.gpu.name) == (1, 8, "mi355x")
    assert (target.hbm_capacity_gb, target.memory_safety_margin) == (192, 0.10)
    assert (resolved.benchmark.has_gpu, resolved.benchmark.benchmark_gpus) == (False, 0)
    budget = resolved.search.budget
    assert (budget.max_proposals, budget.max_perf_calls, budget.max_benchmark_calls) == (30, 30, 0)
    assert (budget.max_rounds, budget.max_rlm_iterations, budget.seed_budget) == (8, 30, 12)
    assert (resolved.search.axes.gbs, resolved.search.axes.overlap_grad_reduce) == (False, False)
    assert resolved.search.axes.tp
    assert (resolved.llm.model, resolved.llm.timeout) == (None, 300)
    (warning,) = resolved.warnings
    assert warning.endswith("hbm_capacity_gb: not set, so 192 is used; mi355x has 288")


def test_secrets_are_in_no_text_of_the_result(cluster) -> None:
    resolved = cluster(GUIDE + "# api_key: sk-another-secret-key\n")
    (text,) = resolved.files.values()
    for shown in (text, repr(resolved), str(resolved), resolved.model_dump_json()):
        assert "very-secret" not in shown
        assert "another-secret" not in shown
    assert "hunter2" not in text
    written = yaml.safe_load(text)
    assert written["agent"]["llm"]["api_key"] == "***"
    assert written["target_cluster"]["num_nodes"] == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "target_cluster:\n  num_node: 4\n",
            ":2: target_cluster.num_node: unknown key; did you mean num_nodes?",
        ),
        ("targetcluster: {}\n", ":1: targetcluster: unknown key; did you mean target_cluster?"),
        (
            "optimization:\n  budget:\n    max_propsals: 1\n",
            ":3: optimization.budget.max_propsals: unknown key; did you mean max_proposals?",
        ),
        ("optimization:\n  axes:\n    zz: 1\n", "unknown key; the keys here are tp, pp, ep"),
        ("agent:\n  llm:\n    api_kye: sk-secret-thing\n", "did you mean api_key?"),
        (
            "target_cluster:\n  num_nodes: two\n",
            ":2: target_cluster.num_nodes: expected a whole number, got 'two'",
        ),
        ("target_cluster:\n  num_nodes: 0\n", "num_nodes: expected more than 0, got 0"),
        ("target_cluster:\n  num_nodes: yes\n", "YAML reads on, off, yes and no as true and false"),
        ("target_cluster: [1]\n", ":1: target_cluster: expected a mapping of keys to values"),
        ("target_cluster:\n  num_nodes: 1000000\n", "= 8000000 GPUs; at most 1000000"),
        ("target_cluster:\n  name: ../x\n", "a run's folder is named after it"),
        ("target_cluster:\n  gpu_arch: mi335x\n", "target_cluster.gpu_arch: unknown GPU 'mi335x'"),
        ("target_cluster:\n  gpu_clock_mhz: 4300000\n", "expected at most 10000, got 4300000"),
        ("target_cluster:\n  gpu_clock_mhz: 1.0e+30\n", "expected at most 10000, got 1e+30"),
        ("target_cluster:\n  gpus_per_node: 1025\n", "expected at most 1024, got 1025"),
        (f"target_cluster:\n  hardware_config: {'a' * 300}\n", "hardware_config: no such file 'aa"),
        (f"target_cluster:\n  gpu_profile: {'a' * 300}\n", "gpu_profile: no such file 'aaa"),
        ("target_cluster:\n  hardware_config: ~nobody-at-all/x\n", "no such file '~nobody-at-all"),
        ("pinned: {pp: 0}\n", ":1: pinned.pp: expected at least 1, got 0"),
        ("pinned: {mbs: -1}\n", ":1: pinned.mbs: expected at least 1, got -1"),
        ("pinned: {sync_free_stage: 4}\n", "pinned.sync_free_stage: expected at most 3, got 4"),
        (
            f"optimization:\n  pinned: {{tp: {10**30}}}\n",
            "pinned.tp: expected at most 1000000, got",
        ),
        ("pinned: {pp_schedule: zzz}\n", "'zzz' is not a schedule. There are: auto, 1f1b"),
        (
            "target_cluster:\n  gpu_clock_mhz: -1\n",
            "target_cluster.gpu_clock_mhz: expected at least 100, got -1",
        ),
        ("target_cluster:\n  gpus_per_node: 16\n", ":2: target_cluster.gpus_per_node: "),
        ("target_cluster:\n  gpu_profile: gone.yaml\n", "gpu_profile: no such file 'gone.yaml'"),
        ("optimization:\n  objective: mfu\n", "'tokens_per_s_per_gpu', got 'mfu'"),
        ("optimization:\n  memory_safety_margin: 1\n", "expected less than 1, got 1"),
        ("optimization:\n  budget:\n    max_rounds: -1\n", "expected at least 0, got -1"),
        ("agent:\n  prompt_extras: text\n", "agent.prompt_extras: expected a list, got 'text'"),
        ("agent:\n  driver: robot\n", "agent.driver: expected one of 'auto', 'rlm'"),
        ("placement: dp-first\n", "placement: expected one of 'tp-cp-ep-dp-pp', "),
        ("pinned: {ppp: 4}\n", ":1: pinned.ppp: unknown key; did you mean pp?"),
        ("pinned: {pp: four}\n", "pinned.pp: expected a whole number, got 'four'"),
        ("pinned: {pp_schedule: zb}\n", "pinned.pp_schedule: "),
        ("stack: {rocm: 7}\n", "stack.rocm: expected text, got 7"),
        ("", "the file is empty"),
        ("a: 1\na: 2\n", "the key 'a' is set twice"),
        ("target_cluster:\n  name: ${GONE}\n", "the environment variable GONE is not set"),
    ],
)
def test_a_mistake_names_file_line_and_key(cluster, text: str, says: str) -> None:
    message = refusal(cluster, text)
    assert "cluster.yaml" in message
    assert says in message


@pytest.mark.parametrize(
    "text",
    ["agent:\n  llm:\n    api_key: [sk-secret-thing]\n", "agent:\n  llm: sk-secret-thing-here\n"],
)
def test_no_message_quotes_a_secret(cluster, text: str) -> None:
    assert "secret" not in refusal(cluster, text)


@pytest.mark.parametrize("nested", [True, False])
def test_additions_may_stand_at_the_top_or_nested(cluster, nested: bool) -> None:
    inner = "{rocm: '7.0', torch: '2.9'}"
    if nested:
        text = (
            f"target_cluster:\n  stack: {inner}\n  placement: tp-cp-ep-pp-dp\n"
            "  moe_imbalance: 1.2\noptimization:\n  pinned: {pp: 4, fp8: none}\n"
        )
    else:
        text = (
            f"stack: {inner}\nplacement: tp-cp-ep-pp-dp\nmoe_imbalance: 1.2\n"
            "pinned: {pp: 4, fp8: none}\n"
        )
    resolved = cluster(text)
    assert resolved.cluster.stack == Stack(rocm="7.0", torch="2.9")
    assert resolved.cluster.placement == "tp-cp-ep-pp-dp"
    assert resolved.cluster.moe_imbalance == MoeImbalance(layer=1.2, pooled=1.2)
    assert resolved.search.pinned == {"pp": 4, "fp8": "none"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("stack: {rocm: '7'}\ntarget_cluster:\n  stack: {rocm: '7'}\n", "target_cluster.stack"),
        ("pinned: {pp: 4}\noptimization:\n  pinned: {pp: 4}\n", "optimization.pinned"),
        ("moe_imbalance: 1\ntarget_cluster:\n  moe_imbalance: 1\n", "target_cluster.moe_imbalance"),
        (
            "placement: tp-cp-ep-dp-pp\ntarget_cluster:\n  placement: tp-cp-ep-dp-pp\n",
            "target_cluster.placement",
        ),
    ],
)
def test_an_addition_in_both_places_is_an_error(cluster, text: str, says: str) -> None:
    assert f"also set as {says}; keep one" in refusal(cluster, text)


def test_both_imbalances_may_be_given(cluster) -> None:
    imbalance = cluster("moe_imbalance: {layer: 1.4, pooled: 1.1}\n").cluster.moe_imbalance
    assert imbalance == MoeImbalance(layer=1.4, pooled=1.1)
    assert cluster("optimization: {}\n").cluster.moe_imbalance is None
    assert "expected at least 1, got 0.5" in refusal(cluster, "moe_imbalance: {layer: 0.5}\n")


def test_pins_are_knobs_with_values_of_their_types(cluster) -> None:
    pinned = cluster("pinned: {pp: '4', use_turbo_deepep: true, pp_schedule: zerobubble}\n")
    assert pinned.search.pinned == {"pp": 4, "use_turbo_deepep": True, "pp_schedule": "zerobubble"}


@pytest.mark.parametrize(
    ("text", "capacity", "cap", "says"),
    [
        ("target_cluster: {gpu_arch: mi300x}\n", 192, 172.8, None),
        ("target_cluster: {gpu_arch: mi325x}\n", 192, 172.8, "so 192 is used; mi325x has 256"),
        ("target_cluster: {gpu_arch: h100-sxm}\n", 80, 72, "not set, so h100-sxm's 80 is used"),
        (
            "target_cluster: {gpu_arch: mi300x}\noptimization: {hbm_capacity_gb: 288}\n",
            288,
            None,
            "288 is more than the 192 of mi300x; usable memory still limits a trial",
        ),
        (
            "target_cluster: {gpu_arch: mi355x}\n"
            "optimization: {hbm_capacity_gb: 200, memory_safety_margin: 0}\n",
            200,
            200,
            None,
        ),
    ],
)
def test_the_memory_cap(cluster, text: str, capacity: float, cap, says) -> None:
    resolved = cluster(text)
    assert resolved.cluster.hbm_capacity_gb == capacity
    assert resolved.cluster.cap_gb == pytest.approx(cap or resolved.cluster.gpu.usable_hbm_gb)
    if says is None:
        assert resolved.warnings == ()
    else:
        assert says in resolved.warnings[0]


def test_the_clock_moves_the_peaks(cluster) -> None:
    slow = cluster("target_cluster: {gpu_clock_mhz: 1200}\noptimization: {hbm_capacity_gb: 288}\n")
    assert slow.cluster.gpu.clock_mhz == 1200
    assert slow.cluster.gpu.bf16_tflops == pytest.approx(2517 / 2)
    assert slow.warnings == ()
    fast = cluster("target_cluster: {gpu_clock_mhz: 9000}\noptimization: {hbm_capacity_gb: 288}\n")
    assert "9000 MHz is above mi355x's 2400" in fast.warnings[0]


def test_the_environment_names_the_model_before_the_file_does(cluster, tmp_path: Path) -> None:
    text = "agent:\n  llm:\n    model: from/file\n  driver: react\n"
    assert cluster(text).llm.model == "from/file"
    assert cluster(text).llm.driver == "react"
    (tmp_path / "home" / ".env").write_text("LLM_MODEL=from/dotenv\n")
    assert cluster(text).llm.model == "from/dotenv"
    assert cluster(text, env={"LLM_MODEL": "from/environment"}).llm.model == "from/environment"


def test_a_key_may_come_from_the_environment(cluster) -> None:
    text = "agent:\n  llm:\n    api_key: ${MY_KEY}\n"
    resolved = cluster(text, env={"MY_KEY": "sk-0123456789"})
    assert resolved.llm.api_key.get_secret_value() == "sk-0123456789"
    assert "0123456789" not in resolved.model_dump_json()


PROFILE = {
    "name": "my_gpu",
    "vendor": "amd",
    "arch": "gfx950",
    "compute_units": 128,
    "clock_mhz": 2000,
    "lds_bytes": 163840,
    "l2_bytes": 4194304,
    "bf16_tflops": 1000,
    "hbm_gb_per_s": 4000,
    "hbm_capacity_gb": 141,
    "usable_hbm_gb": 140,
    "vector_tflops": 60,
}


def test_a_gpu_of_ones_own_needs_a_network_of_its_own(cluster, tmp_path: Path) -> None:
    (tmp_path / "cwd" / "gpu.yaml").write_text(yaml.safe_dump({"gpu": PROFILE}))
    text = "target_cluster:\n  gpu_profile: gpu.yaml\n"
    assert "hardware_config: must be set: no network ships for my_gpu" in refusal(cluster, text)
    resolved = cluster(text + "  hardware_config: mi355x.yaml\n")
    assert resolved.cluster.gpu.name == "my_gpu"
    assert resolved.cluster.hbm_capacity_gb == 141
    assert any(label.endswith("gpu.yaml") for label in resolved.files)
    named = text + "  gpu_arch: other\n  hardware_config: mi355x.yaml\n"
    assert "gpu_profile: gpu_arch is 'other' but the GPU profile file describes" in refusal(
        cluster, named
    )


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"gone\.yaml: no such file$"):
        resolve_cluster(tmp_path / "gone.yaml", env={})


@pytest.mark.parametrize(
    "text",
    [
        "memory_overheads: {fragmentation: 0.1, logits_gb: 2}\n",
        "target_cluster:\n  memory_overheads: {fragmentation: 0.1, logits_gb: 2}\n",
    ],
)
def test_memory_overheads_are_set_line_by_line(cluster, text: str) -> None:
    given = cluster(text).cluster.memory_overheads
    assert (given.fragmentation, given.logits_gb) == (0.1, 2)
    assert given.framework_context_gb == MemoryOverheads().framework_context_gb
    assert cluster("optimization: {}\n").cluster.memory_overheads == MemoryOverheads()


def test_an_unknown_or_impossible_memory_overhead_is_refused(cluster) -> None:
    said = refusal(cluster, "memory_overheads: {fragmentations: 0.1}\n")
    assert "memory_overheads.fragmentations" in said
    assert "fragmentation" in said
    assert "less than 1" in refusal(cluster, "memory_overheads: {fragmentation: 5}\n")


@pytest.mark.parametrize(
    "text",
    [
        "target_cluster:\n  num_nodes: ${PLACE}\n",
        "target_cluster:\n  num_nodes: 1${PLACE}\n",
        "target_cluster:\n  gpu_arch: ${PLACE}\n",
        "target_cluster:\n  name: a ${PLACE}\n",
        "target_cluster:\n  gpu_profile: ${PLACE}\n",
        "target_cluster:\n  hardware_config: ${PLACE}\n",
        "target_cluster:\n  stack: ${PLACE}\n",
        "pinned: {pp: '${PLACE}'}\n",
        "pinned: {pp_schedule: '${PLACE}'}\n",
        "agent:\n  driver: ${PLACE}\n",
    ],
)
def test_a_value_out_of_a_variable_is_named_and_not_shown(cluster, text: str) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster(text, env={"PLACE": "hunter2-of-mine"})
    assert "hunter2" not in f"{caught.value} {caught.value.hint}"
    assert "${PLACE}" in str(caught.value)


def test_long_values_are_cut(cluster) -> None:
    assert len(refusal(cluster, f"target_cluster:\n  gpu_arch: {'x' * 5000}\n")) < 300
    assert len(refusal(cluster, f"target_cluster:\n  num_nodes: {'x' * 5000}\n")) < 300


def test_a_calibration_is_read_turned_off_or_refused(cluster, tmp_path: Path) -> None:
    shipped = shipped_calibration(gpu_profile("mi355x"), "tile")
    assert shipped is not None
    (tmp_path / "cwd" / "mine.yaml").write_text(calibration_yaml(shipped, "test"))
    text = "target_cluster:\n  calibration: "
    resolved = cluster(text + "mine.yaml\n")
    assert resolved.cluster.calibration == shipped
    assert any(label.endswith("mine.yaml") for label in resolved.files)
    assert cluster("target_cluster: {}\n").cluster.calibration is None
    assert cluster(text + "none\n").cluster.calibration == "none"
    assert "calibration: no such file 'gone.yaml'" in refusal(cluster, text + "gone.yaml\n")
    other = text + "mine.yaml\n  gpu_arch: h100\n"
    assert "calibration: it is of mi355x, the GPU is h100-sxm" in refusal(cluster, other)
