from storage.exports.printed import export_lines, printed_result
from tests.storage.builders import RUN, normal_trial
from tests.storage.exports.runs import run_of, run_with
from tests.storage.workloads import workload

WORKLOAD = workload()

TUNED = {
    "vpp": 2,
    "pp_schedule": "interleaved",
    "recompute_granularity": "selective",
    "fp8": "hybrid",
    "gbs": 256,
    "use_turbo_deepep": True,
}

EXPECTED = f"""\
=== BEST CONFIGURATION ===
  trial #1  source=simulate
  TP=1 PP=4 EP=8 CP=1
  MBS=2 GBS=256 VPP=2 schedule=1f1b-interleaved
  recompute=selective/None
  use_turbo_deepep=on
  fp8=hybrid
  → tokens/s/GPU = 3,260
  → memory/GPU   = 182.8 GB
  → headroom     = 76.4 GB below the cap of 259.2 GB
  → iteration    = 5,123.4 ms
  beats the workload as it is: trial #0 (baseline), 2,900 tokens/s/GPU, by 12.4 %; it does not fit \
(271.1 GB, the cap is 259.2 GB)
  beats the next best: trial #2 (neighbour), 3,000 tokens/s/GPU, by 8.7 %
  provenance: analytic, signature model {"1" * 16}, cluster {"2" * 16}, stack {"3" * 16}
  run {RUN}, as of event 11
  ! fp8 hybrid replaces BF16: convergence must be validated
  ! the global batch changes from 128 to 256: convergence must be validated
  ! GEMM backend tile: Origami is not installed
  ! contention between jobs and differences between nodes are not modelled

=== EXPORTS for primus-cli ===
  export PRIMUS_TP=1
  export PRIMUS_PP=4
  export PRIMUS_EP=8
  export PRIMUS_CP=1
  # then pass
  #   --micro-batch-size 2
  #   --global-batch-size 256
  #   --enable-primus-turbo true
  #   --fp8 hybrid
  #   --num-virtual-stages-per-pipeline-rank 2
  #   --pp-algorithm 1f1b-interleaved
  #   --recompute-granularity selective
  #   --use-turbo-deepep true
  #   --virtual-pipeline-model-parallel-size 2
"""


def test_the_best_configuration_is_printed_in_the_guides_form_and_beyond() -> None:
    state = run_of(
        [
            ({}, {"tokens_per_s_per_gpu": 2900.0, "fits": False, "memory_per_gpu_gb": 271.1}),
            (TUNED, {}),
            ({"mbs": 1}, {"tokens_per_s_per_gpu": 3000.0}),
        ],
        lesser_paths=("GEMM backend tile: Origami is not installed",),
    )
    assert printed_result(state, WORKLOAD) == EXPECTED


def test_a_rate_is_printed_with_its_band_and_what_that_rests_on() -> None:
    near = {"error": 0.04, "band": 0.09, "nearest": "gpu and precision", "rows": 12, "groups": 5}
    printed = printed_result(run_of([({}, {"expected_error": near})]), WORKLOAD)
    assert "  → tokens/s/GPU = 3,260 ± 9 %\n" in printed
    assert (
        "  → error        = 4 % typical, 9 % in 8 of 10 (12 left-out runs in 5 groups of this GPU"
        in printed
    )
    unknown = printed_result(run_of([({}, {"expected_error": {"nearest": "none"}})]), WORKLOAD)
    assert "  → tokens/s/GPU = 3,260\n  → error        = unknown: uncalibrated" in unknown


def test_every_knob_that_differs_is_printed() -> None:
    changes = {
        "etp": 8,
        "recompute_granularity": "full",
        "recompute_method": "block",
        "recompute_num_layers": 7,
        "overlap_grad_reduce": False,
        "overlap_param_gather": False,
        "cross_entropy_loss_fusion": False,
        "use_distributed_optimizer": False,
        "layout": "Et*14|t*14|t*14|t*14,L",
        "sync_free_stage": 1,
    }
    text = printed_result(run_with(changes), WORKLOAD)
    for line in (
        "recompute=full/7",
        "recompute_method=block",
        "etp=8",
        "overlap_grad_reduce=off",
        "use_distributed_optimizer=off",
        "layout=Et*14|t*14|t*14|t*14,L",
        "sync_free_stage=1",
        "#   --pipeline-model-parallel-layout 'Et*14|t*14|t*14|t*14,L'",
        "#   --expert-tensor-parallel-size 8",
        "#   --cross-entropy-loss-fusion false",
    ):
        assert f"  {line}\n" in text, line


def test_a_word_of_the_file_that_must_go_is_a_flag() -> None:
    stated = workload(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=0
    )
    lines = export_lines(normal_trial(pp_schedule="zero-bubble"), stated)
    assert "#   --recompute-granularity null" in lines


def test_the_workload_itself_needs_no_flag_but_its_batch() -> None:
    lines = export_lines(WORKLOAD.baseline, WORKLOAD, {"fp8_recipe": "tensorwise"})
    assert lines[4:] == ["# then pass", "#   --micro-batch-size 2", "#   --global-batch-size 128"]


def test_synthetic_figures_are_called_so() -> None:
    state = run_with({"mbs": 1}, source="dry", provenance="synthetic")
    text = printed_result(state, WORKLOAD)
    assert "source=dry" in text
    assert "provenance: synthetic" in text
    assert "! the figures are synthetic: they say nothing about the cluster" in text


def test_an_unfinished_run_says_so() -> None:
    state = run_of([({}, {})], finish=False)
    assert "as of event 5 (the run is not finished)" in printed_result(state, WORKLOAD)


def test_a_baseline_that_wins_beats_nothing_but_the_next() -> None:
    text = printed_result(run_of([({}, {}), ({"mbs": 1}, {"tokens_per_s_per_gpu": 1.0})]), WORKLOAD)
    assert "beats the workload as it is" not in text
    assert "beats the next best: trial #1" in text
    assert "convergence" not in text


def test_nothing_legal_lists_what_bound_and_what_would_loosen_it() -> None:
    state = run_of(
        [({}, {"fits": False, "memory_per_gpu_gb": 271.1})],
        constraints=("memory (1 candidate): 271.1 GB of 259.2 GB; margin 0.05 would admit it",),
    )
    assert printed_result(state, WORKLOAD) == (
        "=== NO LEGAL CONFIGURATION ===\n"
        "  1 candidate: 0 rejected, 1 scored, none of them legal and within the memory cap\n"
        "  what bound:\n"
        "    - memory (1 candidate): 271.1 GB of 259.2 GB; margin 0.05 would admit it\n"
        f"  run {RUN}, as of event 7\n"
    )


def test_before_its_end_a_run_does_not_say_what_bound() -> None:
    state = run_of([({"tp": 3}, {"code": "tp_heads", "legal": False, "fits": None})], finish=False)
    text = printed_result(state, WORKLOAD)
    assert "    - said when the run has finished; trials.jsonl has every rejection" in text
