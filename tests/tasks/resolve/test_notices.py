import pytest
import yaml

from tasks.resolve.notices import used_keys
from tasks.resolve.shipped import PRESETS

FOREIGN = """
accumulate_allreduce_grads_in_fp32 activation_func adam_beta1 adam_beta2 adam_eps
add_position_embedding apply_layernorm_1p apply_query_key_layer_scaling
apply_residual_connection_post_layernorm apply_rope_fusion async_tensor_model_parallel_allreduce
attention_dropout attention_softmax_in_fp32 attn_sink attn_sliding_window auto_continue_train
barrier_with_L1_time bias_dropout_fusion bias_gelu_fusion bias_swiglu_fusion
check_for_nan_in_loss_and_grad ckpt_format clip_grad conv_L_cache
create_attention_mask_in_dataloader cross_entropy_fusion_impl data_cache_path
ddp_average_in_collective ddp_num_buckets decoder_num_layers decoder_seq_length
deprecated_use_mcore_models disable_last_saving disable_primus_topk_router disable_wandb
encoder_num_layers encoder_pipeline_model_parallel_size encoder_seq_length
encoder_tensor_model_parallel_size eod_mask_loss eval_interval eval_iters
exit_on_missing_checkpoint final_logit_softcapping finetune fp8_amax_history_len fp8_interval
fp8_margin fp8_wgrad fp32_residual_connection fused_padded_mla_attention global_aux_loss
hidden_dropout hierarchical_context_parallel_sizes init_method_std keep_fp8_transpose_cache
layernorm_epsilon legacy_tokenizer load log_interval lr lr_decay_iters lr_warmup_iters manual_gc
masked_softmax_fusion microbatch_group_size_per_vp_stage min_lr mock_data model_parallel_size
moe_apply_probs_on_input moe_aux_loss_coeff moe_deepep_num_sms moe_flex_dispatcher_backend
moe_input_jitter_eps moe_pad_expert_input_to_capacity moe_per_layer_logging moe_permute_fusion
moe_router_bias_update_rate moe_router_dtype moe_router_enable_expert_bias
moe_router_force_load_balancing_type moe_router_fusion moe_router_group_topk
moe_router_load_balancing_type moe_router_num_groups moe_router_padding_for_fp8
moe_router_pre_softmax moe_router_score_function moe_router_topk_limited_devices
moe_router_topk_scaling_factor moe_token_drop_policy moe_token_dropping moe_use_upcycling
moe_z_loss_coeff mscale mscale_all_dim mtp_loss_scaling_factor no_load_optim norm_epsilon
num_distributed_optimizer_instances num_layers_at_end_in_bf16 num_seq_splits num_workers
openai_gelu original_max_position_embeddings overlap_p2p_comm
overlap_param_gather_with_optimizer_step perform_initialization
pipeline_model_parallel_comm_backend pipeline_model_parallel_split_rank pp_warmup profile
profile_ranks qk_l2_norm rotary_base rotary_interleaved rotary_percent rotary_scaling_factor
save_interval scatter_gather_tensors_in_pipeline seed squared_relu stage stderr_sink_level
tiktoken_pattern tp_comm_bulk_dgrad tp_comm_overlap_ag tp_comm_overlap_cfg tp_comm_overlap_rs
tp_comm_overlap_rs_dgrad train_data_path train_iters trust_remote_code turbo_deepep_num_cu
turbo_deepep_use_comm_stream turbo_gemm_backend use_checkpoint_args use_cpu_initialization
use_fla_fused_rmsnorm use_legacy_models use_pytorch_profiler use_rope_scaling
use_te_activation_func use_tp_pp_dp_mapping use_turbo_autotune use_turbo_fused_act_with_probs
use_turbo_gemm use_turbo_permute_padding use_turbo_rms_norm use_v4_attention_backend
vision_pretraining_type vocab_extra_ids vocab_file wandb_project weight_decay
zero_bubble_max_pending_backward
"""
"""Settings of real workloads and of the framework that Refold does not read."""


def test_settings_of_the_framework_are_never_taken_for_misspellings(resolve) -> None:
    names = FOREIGN.split()
    assert not set(names) & used_keys()
    assert resolve(dict.fromkeys(names, 1)).warnings == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("micro_batchsize", "micro_batch_size"),
        ("mirco_batch_size", "micro_batch_size"),
        ("global_batch_sizes", "global_batch_size"),
        ("tensor_parallel_size", "tensor_model_parallel_size"),
        ("pipeline_parallel_size", "pipeline_model_parallel_size"),
        ("recompute_num_layer", "recompute_num_layers"),
        ("Recompute_Granularity", "recompute_granularity"),
        ("use_distributed_optimiser", "use_distributed_optimizer"),
        ("use_turbo_deep_ep", "use_turbo_deepep"),
        ("num_expert", "num_experts"),
        ("fp8_receipe", "fp8_recipe"),
        ("seq_len", "seq_length"),
        ("sync_free_stage", "turbo_sync_free_moe_stage"),
        ("tp", "tensor_model_parallel_size"),
    ],
)
def test_a_misspelled_key_is_named_with_the_right_one(resolve, written: str, meant: str) -> None:
    (warning,) = resolve({written: 2}).warnings
    assert f"workload.yaml:7: modules.pre_trainer.overrides.{written}: " in warning
    assert warning.endswith(f"did you mean {meant}?")


def test_a_key_beside_its_correct_spelling_is_left_alone(resolve) -> None:
    assert resolve({"num_expert": 2, "num_experts": None}).warnings == ()


def test_settings_beside_overrides_are_warned_of(resolve) -> None:
    (warning,) = resolve(micro_batch_size=4).warnings
    assert warning.endswith(
        "modules.pre_trainer.micro_batch_size: not read here; settings belong under overrides"
    )


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"use_megatron_fsdp": True}, "Megatron-FSDP is projected as if it were off"),
        ({"optimizer_cpu_offload": True}, "as if they stayed on the GPU"),
        ({"rampup_batch_size": [16, 16, 100]}, "the final global batch"),
        ({"fp8": "hybrid", "fp8_recipe": "blockwise"}, "projected as tensorwise"),
    ],
)
def test_settings_nobody_models_are_warned_of(resolve, overrides, says: str) -> None:
    (warning,) = resolve(overrides).warnings
    assert says in warning


def test_moe_settings_without_their_switch_are_warned_of(resolve) -> None:
    overrides = {"use_turbo_deepep": True, "turbo_sync_free_moe_stage": 1}
    warnings = resolve(overrides, model="mixtral_8x7B_v0.1").warnings
    assert len(warnings) == 2
    assert all("no effect without enable_primus_turbo: true" in one for one in warnings)
    assert resolve(overrides).warnings == ()


def test_a_users_file_of_a_model_known_for_other_layers_is_taken_as_written(
    resolve, tmp_path
) -> None:
    (tmp_path / "glm5.yaml").write_text("extends: llama3_8B.yaml\n")
    (warning,) = resolve(model="glm5.yaml", model_path=[tmp_path]).warnings
    assert "has DeepSeek sparse attention (DSA); projected as the file says" in warning


def test_neighbouring_keys_are_none_that_are_read() -> None:
    keys = yaml.safe_load((PRESETS / "neighbouring_keys.yaml").read_text())["keys"]
    assert not set(keys) & used_keys()
    assert keys == sorted(keys)
