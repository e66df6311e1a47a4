import pytest

from schemas.errors import WorkloadError

MLA_LAYOUT = "Et*1|t*1|" + "t*2|" * 29 + "t*1,L"
TURBO = {"enable_primus_turbo": True}


def refusal(resolve, overrides, **more) -> str:
    with pytest.raises(WorkloadError) as caught:
        resolve(overrides, **more)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_silent_file_has_the_frameworks_defaults(resolve) -> None:
    workload = resolve()
    base = workload.baseline
    assert (base.mbs, base.gbs, workload.seq_length) == (2, 16, 1024)
    assert (base.tp, base.pp, base.ep, base.etp, base.cp, base.vpp) == (1, 1, 1, 1, 1, 1)
    assert (base.use_distributed_optimizer, base.use_torch_fsdp2) == (True, False)
    assert (base.overlap_grad_reduce, base.overlap_param_gather) == (False, False)
    assert (base.recompute_granularity, base.fp8, base.pp_schedule) == ("none", "none", "1f1b")
    assert workload.make_vocab_size_divisible_by == 128
    assert workload.precision.optimizer == "adam"
    assert workload.sequence_parallel


def test_the_baseline_is_what_the_file_says_even_where_no_cluster_allows_it(resolve) -> None:
    odd = {
        "tensor_model_parallel_size": 3,
        "pipeline_model_parallel_size": 7,
        "expert_model_parallel_size": 5,
        "context_parallel_size": 11,
        "micro_batch_size": 13,
        "global_batch_size": 1,
        "use_torch_fsdp2": True,
    }
    base = resolve(odd).baseline
    assert (base.tp, base.pp, base.ep, base.cp, base.mbs, base.gbs) == (3, 7, 5, 11, 13, 1)
    assert base.use_torch_fsdp2
    assert base.use_distributed_optimizer


def test_numbers_and_flags_as_people_write_them(resolve) -> None:
    written = {
        "micro_batch_size": "4",
        "global_batch_size": 64.0,
        "sequence_parallel": 0,
        "overlap_grad_reduce": "yes",
        "use_distributed_optimizer": "False",
    }
    workload = resolve(written)
    assert (workload.baseline.mbs, workload.baseline.gbs) == (4, 64)
    assert not workload.sequence_parallel
    assert workload.baseline.overlap_grad_reduce
    assert not workload.baseline.use_distributed_optimizer


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("micro_batch_size", "two", "expected a whole number, got 'two'"),
        ("micro_batch_size", 0, "expected at least 1, got 0"),
        ("global_batch_size", -8, "expected at least 1, got -8"),
        ("global_batch_size", [1, 2], "expected a whole number, got a list"),
        ("global_batch_size", {"a": 1}, "expected a whole number, got a mapping"),
        ("seq_length", 1.5, "expected a whole number, got 1.5"),
        ("seq_length", 10**13, "expected at most"),
        ("seq_length", None, "must be set to a whole number"),
        ("tensor_model_parallel_size", True, "YAML reads on, off, yes and no as true and false"),
        ("overlap_grad_reduce", "maybe", "expected true or false, got 'maybe'"),
        ("use_torch_fsdp2", 2, "expected true or false, got 2"),
        ("recompute_granularity", "ful", "did you mean 'full'?"),
        ("fp8", "hybird", "did you mean 'hybrid'?"),
        ("fp8", True, "expected one of none, hybrid, e4m3, delayed, got true"),
        ("turbo_sync_free_moe_stage", 4, "expected at most 3, got 4"),
        ("cp_comm_type", ["p2p", "a2a"], "for all layers alike"),
        ("moe_token_dispatcher_type", "all2all", "did you mean 'alltoall'?"),
        ("optimizer", "adamw2", "did you mean 'adam'?"),
    ],
)
def test_a_wrong_value_names_file_line_and_key(resolve, key: str, value, says: str) -> None:
    message = refusal(resolve, {"lr": 1.0e-5, key: value})
    assert f"workload.yaml:8: modules.pre_trainer.overrides.{key}: " in message
    assert says in message


PP4 = {"pipeline_model_parallel_size": 4}


@pytest.mark.parametrize(
    ("stated", "vpp"),
    [
        ({}, 1),
        ({"virtual_pipeline_model_parallel_size": 2}, 2),
        ({"virtual_pipeline_model_parallel_size": 1}, 1),
        ({"virtual_pipeline_model_parallel_size": None}, 1),
        ({"num_virtual_stages_per_pipeline_rank": 4}, 4),
        ({"num_layers_per_virtual_pipeline_stage": 2}, 4),
        ({"num_layers_per_virtual_pipeline_stage": 8}, 1),
        ({"pipeline_model_parallel_layout": "Et*4|" + "t*4|" * 6 + "t*4,L"}, 2),
        ({"pipeline_model_parallel_layout": "Et*8|t*8|t*8|t*8,L"}, 1),
    ],
)
def test_chunks_per_rank_have_four_spellings(resolve, stated, vpp: int) -> None:
    base = resolve(PP4 | stated).baseline
    assert base.vpp == vpp
    assert base.pp_schedule == ("interleaved" if vpp > 1 else "1f1b")
    assert base.layout == stated.get("pipeline_model_parallel_layout")


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        (
            {
                "virtual_pipeline_model_parallel_size": 2,
                "num_virtual_stages_per_pipeline_rank": 4,
            },
            "contradicts the other spelling",
        ),
        (
            {"num_layers_per_virtual_pipeline_stage": 3},
            "num_layers 32 is not a multiple of",
        ),
        (
            {"pipeline_model_parallel_layout": "Et*8|t*8|t*8|t*7,L"},
            "the layout has 31 decoder layers, num_layers is 32",
        ),
        (
            {"pipeline_model_parallel_layout": "Et*16|t*8|t*8,L"},
            "has 3 stages, which pp = 4 does not divide",
        ),
        (
            {
                "pipeline_model_parallel_layout": "Et*8|t*8|t*8|t*8,L",
                "virtual_pipeline_model_parallel_size": 2,
            },
            "has 4 stages, pp·vpp is 8",
        ),
        ({"pipeline_model_parallel_layout": "eval(1)"}, "is not part of a layout"),
        (
            {"account_for_embedding_in_pipeline_split": True},
            "not modelled; write the split as pipeline_model_parallel_layout",
        ),
        ({"decoder_pipeline_manual_split_list": [8, 8, 8, 8]}, "not modelled; write the split"),
    ],
)
def test_splits_that_make_no_sense_say_why(resolve, stated, says: str) -> None:
    message = refusal(resolve, PP4 | stated)
    assert says in message
    assert "modules.pre_trainer.overrides." in message


def test_a_layout_may_be_a_list_of_lists(resolve) -> None:
    rows = [["embedding", *["decoder"] * 8], *[["decoder"] * 8] * 2, [*["decoder"] * 8, "loss"]]
    base = resolve(PP4 | {"pipeline_model_parallel_layout": rows}).baseline
    assert base.layout == "E" + "t" * 8 + "|" + "t" * 8 + "|" + "t" * 8 + "|" + "t" * 8 + "L"


def test_a_layout_that_leaves_out_the_prediction_layers_is_understood(resolve) -> None:
    overrides = {
        "pipeline_model_parallel_size": 16,
        "pipeline_model_parallel_layout": MLA_LAYOUT,
        "expert_model_parallel_size": 8,
    }
    base = resolve(overrides, model="deepseek_v3").baseline
    assert (base.vpp, base.layout) == (2, MLA_LAYOUT)


def test_first_and_last_stage_counts_are_kept(resolve) -> None:
    counts = {"decoder_first_pipeline_num_layers": 5, "decoder_last_pipeline_num_layers": 3}
    base = resolve(PP4 | counts).baseline
    assert (base.first_stage_layers, base.last_stage_layers) == (5, 3)


@pytest.mark.parametrize(
    ("flags", "schedule"),
    [
        ({}, "1f1b"),
        ({"enable_zero_bubble": True}, "1f1b"),
        ({"pp_algorithm": "zero-bubble"}, "1f1b"),
        ({"patch_zero_bubble": True}, "zero-bubble"),
        ({"patch_zero_bubble": True, "enable_zero_bubble": False}, "1f1b"),
        ({"patch_primus_pipeline": True}, "1f1b"),
        ({"patch_primus_pipeline": True, "pp_algorithm": "zero-bubble-heuristic"}, "zb-heuristic"),
        ({"patch_primus_pipeline": True, "pp_algorithm": "v-min"}, "zbv-greedy-min"),
    ],
)
def test_the_schedule_is_the_one_that_runs(resolve, flags, schedule: str) -> None:
    assert resolve(PP4 | flags).baseline.pp_schedule == schedule
    assert resolve(flags).baseline.pp_schedule == "1f1b"


def test_an_unknown_schedule_is_refused_where_it_stands(resolve) -> None:
    message = refusal(resolve, PP4 | {"patch_primus_pipeline": True, "pp_algorithm": "zero-buble"})
    assert "overrides.pp_algorithm: " in message
    assert "did you mean 'zero-bubble'?" in message


FULL = {"recompute_granularity": "full"}


@pytest.mark.parametrize(
    ("written", "granularity", "method", "layers", "ids", "modules"),
    [
        ({}, "none", None, 0, (), ()),
        ({"recompute_method": "block", "recompute_num_layers": 8}, "none", None, 0, (), ()),
        (
            FULL | {"recompute_method": "block", "recompute_num_layers": 0},
            "none",
            None,
            0,
            (),
            (),
        ),
        (FULL | {"recompute_num_layers": 0}, "none", None, 0, (), ()),
        (
            FULL | {"recompute_method": "block", "recompute_num_layers": 80},
            "full",
            "block",
            80,
            (),
            (),
        ),
        (
            FULL | {"recompute_method": "uniform", "recompute_num_layers": 1},
            "full",
            "uniform",
            1,
            (),
            (),
        ),
        (FULL | {"recompute_layer_ids": "0,3, 4"}, "full", None, 0, (0, 3, 4), ()),
        (FULL | {"recompute_layer_ids": [4, 0, 4]}, "full", None, 0, (0, 4), ()),
        ({"recompute_granularity": "selective"}, "selective", None, 0, (), ("core_attn",)),
        (
            {"recompute_granularity": "selective", "recompute_modules": ["moe_act", "core_attn"]},
            "selective",
            None,
            0,
            (),
            ("core_attn", "moe_act"),
        ),
        ({"recompute_activations": True}, "selective", None, 0, (), ("core_attn",)),
        ({"moe_layer_recompute": True}, "selective", None, 0, (), ("core_attn", "moe")),
    ],
)
def test_recompute_in_normal_form(
    resolve, written, granularity, method, layers, ids, modules
) -> None:
    base = resolve(written).baseline
    assert base.recompute_granularity == granularity
    assert base.recompute_method == method
    assert base.recompute_num_layers == layers
    assert base.recompute_layer_ids == ids
    assert base.recompute_modules == modules


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (FULL, "full needs recompute_num_layers or recompute_layer_ids"),
        (FULL | {"recompute_num_layers": 2}, "full needs recompute_method: block or uniform"),
        (FULL | {"recompute_layer_ids": "0,99"}, "there is no layer 99: the model has 32, from 0"),
        (FULL | {"recompute_layer_ids": "a,b"}, "expected whole numbers"),
        (FULL | {"recompute_layer_ids": [True]}, "expected whole numbers"),
        (
            FULL | {"recompute_layer_ids": "1", "recompute_method": "block"},
            "recompute_method must be null with it, it is block",
        ),
    ],
)
def test_recompute_that_cannot_be_understood(resolve, written, says: str) -> None:
    assert says in refusal(resolve, written)


def test_prediction_layers_may_be_recomputed_by_number(resolve) -> None:
    ids = resolve(FULL | {"recompute_layer_ids": "60,61"}, model="deepseek_v3").baseline
    assert ids.recompute_layer_ids == (60, 61)


@pytest.mark.parametrize(
    ("written", "deepep", "stage"),
    [
        (TURBO, False, 0),
        (TURBO | {"use_turbo_deepep": True}, True, 0),
        (TURBO | {"turbo_sync_free_moe_stage": 1}, False, 1),
        (TURBO | {"turbo_sync_free_moe_stage": 2}, True, 2),
        (TURBO | {"turbo_sync_free_moe_stage": 3, "use_turbo_deepep": False}, True, 3),
        ({"use_turbo_deepep": True, "turbo_sync_free_moe_stage": 2}, False, 0),
    ],
)
def test_moe_communication_as_it_runs(resolve, written, deepep: bool, stage: int) -> None:
    base = resolve(written, model="mixtral_8x7B_v0.1").baseline
    assert (base.use_turbo_deepep, base.sync_free_stage) == (deepep, stage)
    dense = resolve(written).baseline
    assert (dense.use_turbo_deepep, dense.sync_free_stage) == (False, 0)


def test_expert_tp_follows_tp_unless_set(resolve) -> None:
    tp = {"tensor_model_parallel_size": 4}
    assert resolve(tp).baseline.etp == 4
    assert resolve(tp | {"expert_tensor_parallel_size": 1}).baseline.etp == 1


@pytest.mark.parametrize("written", [None, False, "null", "none"])
def test_fp8_is_off_in_every_spelling(resolve, written) -> None:
    assert resolve({"fp8": written}).baseline.fp8 == "none"


@pytest.mark.parametrize("fp8", ["hybrid", "e4m3", "delayed", "HYBRID"])
def test_fp8_formats(resolve, fp8: str) -> None:
    assert resolve({"fp8": fp8}).baseline.fp8 == fp8.lower()
