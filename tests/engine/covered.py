"""Behaviours of torch's own autograd suite that tests outside the behaviour groups check, and known gaps.

`python -m tests.engine.covered` writes `docs/behaviours.md` from these lists and from the
groups; a test holds that the file is up to date.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.engine.behaviour import GROUPS

MODULES = ("test_backward", "test_hooks", "test_function", "test_second_order", "test_modes", "test_errors",
           "test_saved", "test_views", "test_functional", "test_set", "test_runs", "test_grad_dtype", "test_order_of_leaves",
           "test_hook_order", "test_hooks_without_cotangent", "test_edges_everywhere", "test_function_results",
           "test_saved_hooks", "test_saved_mutation", "test_checkpoints", "test_anomaly_mode", "test_inference_mode",
           "test_sparse_values", "test_expanded_cotangents", "test_gradcheck")
PAGE = Path(__file__).parents[2] / "docs" / "behaviours.md"

COVERED = {
    "memory release, cycles, deep graphs": {
        "test_free_deep_graph": "test_lifetime: a chain of a hundred thousand",
        "test_free_deep_graph_complicated": "test_lifetime: two branches of a deep graph",
        "test_free_deep_graph_pyfunction": "test_lifetime: a deep chain of functions is freed",
        "test_hook_closure_cycle": "test_lifetime: functions and hooks make no cycle",
        "test_inplace_on_view_saved_output": "test_lifetime: inplace writes make no cycle",
        "test_create_graph_and_full_backward_hook_cycle": "test_lifetime: create graph makes no cycle in grad",
        "test_pynode_destruction_deadlock": "test_threads: tensors die in any thread",
    },
    "multi-thread": {
        "test_simple_backward": "test_threads: independent graphs in parallel",
        "test_simple_backward_same_input": "test_threads: a leaf shared by threads gets every gradient",
        "test_multithreaded_exception_propagation": "test_threads: exceptions of a thread stay there",
        "test_dataparallel_saved_tensors_hooks": "test_threads: saved tensor hooks are of the thread",
        "test_grad_thread_safety": "test_threads: functions in parallel",
        "test_thread_shutdown": "test_threads: a thread that ends with an open graph",
    },
    "gradcheck / gradgradcheck": {
        "test_gradcheck_input": "test_functional: gradcheck accepts what is right",
        "test_gradcheck_validates_inputs": "test_functional: gradcheck needs an input",
        "test_gradcheck_custom_error": "test_functional: gradcheck names the wrong entry",
        "test_gradcheck_check_batched_grad": "test_vectorized: torch's gradcheck of batches",
    },
    "functional API": {
        "test_vjp_output": "`ao.vjp` of one and of several tensors gives torch's values and products",
        "test_vjp_scalar": "`ao.vjp` of a scalar needs no `v`",
        "test_vjp_err_check":
            "`ao.vjp` refuses a missing `v`, a `v` of another shape or structure, and results or inputs "
            "that are no tensors, with torch's message",
        "test_vjp_err_check_strict": "`ao.vjp(strict=True)` refuses a result that does not depend on the input",
        "test_vjp_create_graph": "`ao.vjp(create_graph=True)` inside a context gives the same products",
        "test_jvp_output": "`ao.jvp` of one and of several tensors gives torch's values and products",
        "test_jvp_scalar": "`ao.jvp` at a scalar needs no `v`",
        "test_jvp_err_check": "`ao.jvp` refuses a missing `v` and a `v` of another shape, with torch's message",
        "test_jvp_err_check_strict": "`ao.jvp(strict=True)` refuses a result that does not depend on the input",
        "test_jvp_no_grad": "`ao.jvp` computes the same under `no_grad`, and leaves grad mode off",
        "test_vhp_output": "`ao.vhp` at one and at several tensors gives torch's values and products",
        "test_vhp_scalar": "`ao.vhp` takes the function's scalar result as it is",
        "test_vhp_err_check": "`ao.vhp` refuses a function whose result is not a scalar, with torch's message",
        "test_vhp_err_check_strict": "`ao.vhp(strict=True)` refuses a gradient that does not depend on the input",
        "test_vhp_no_grad": "`ao.vhp` computes the same under `no_grad`, and leaves grad mode off",
        "test_hvp_output": "`ao.hvp` at one and at several tensors gives torch's values and products",
        "test_hvp_scalar": "`ao.hvp` takes the function's scalar result as it is",
        "test_hvp_err_check":
            "`ao.hvp` refuses a missing `v` and a function whose result is not a scalar, with torch's message",
        "test_hvp_err_check_strict": "`ao.hvp(strict=True)` refuses a gradient that does not depend on the input",
        "test_hvp_no_grad": "`ao.hvp` computes the same under `no_grad`, and leaves grad mode off",
        "test_jacobian_scalar": "`ao.jacobian` at a scalar has the shape of the result",
        "test_jacobian_err_check": "`ao.jacobian` refuses results and inputs that are no tensors, with torch's message",
        "test_jacobian_err_check_strict":
            "`ao.jacobian(strict=True)` refuses a result that does not depend on one of the inputs",
        "test_jacobian_no_grad": "`ao.jacobian` computes the same under `no_grad`, and leaves grad mode off",
        "test_jacobian_err_check_strict_vectorize":
            "`ao.jacobian` refuses `strict=True` together with `vectorize=True`",
        "test_jacobian_vectorize_correctness_simple":
            "`ao.jacobian(vectorize=True)` equals the Jacobian computed row by row",
        "test_jacobian_vectorize_correctness_multi_input":
            "`ao.jacobian(vectorize=True)` with several inputs and results equals the Jacobians computed row by row",
        "test_jacobian_vectorize_correctness_zero_dim":
            "`ao.jacobian(vectorize=True)` at a scalar equals the Jacobian computed row by row",
        "test_jacobian_vectorize_correctness_different_dtype":
            "`ao.jacobian(vectorize=True)` with inputs and results of two dtypes equals the Jacobians "
            "computed row by row",
        "test_hessian_output": "`ao.hessian` at one and at several tensors gives torch's values",
        "test_hessian_scalar": "`ao.hessian` of a linear function is zero",
        "test_hessian_err_check":
            "`ao.hessian` refuses a function whose result is not one scalar, with torch's message",
        "test_hessian_err_check_strict": "`ao.hessian(strict=True)` refuses a result that does not depend on the input",
        "test_hessian_err_check_strict_vectorize": "`ao.hessian` refuses `strict=True` together with `vectorize=True`",
        "test_hessian_create_graph": "`ao.hessian(create_graph=True)` inside a context gives the same values",
        "test_hessian_no_grad": "`ao.hessian` computes the same under `no_grad`, and leaves grad mode off",
        "test_hessian_vectorize_correctness_simple":
            "`ao.hessian(vectorize=True)` equals the Hessian computed row by row",
    },
}

GAPS = {
    "forward-mode AD by dual numbers":
        "not supported; `autograd_opt.jvp`, `torch.func.jvp` and `jacfwd` give the same products",
    "`grad_fn._saved_*`, `_raw_saved_*`, calling a node, `_set_sequence_nr`":
        "internals of torch's engine; a node shows its operator, attributes and operands instead",
    "attributes of `ctx` can be read on the `grad_fn` of a Function":
        "only until a backward pass has freed the graph",
    "the cotangent that a post-hook of a leaf's node receives is `.grad` itself "
    "(`test_post_accumulate_grad_hook_ordering`)":
        "the post-hook receives another tensor",
    "hooks of a leaf are freed with the leaf (`test_post_accumulate_grad_hook_gets_cleaned_up`)":
        "they are freed when both the leaf and the graph that used it are freed",
    "hooks on the node of a leaf, if the node was obtained outside the context, as by "
    "DistributedDataParallel":
        "these hooks are not called; hooks of the tensor itself are called. DistributedDataParallel is "
        "refused",
    "a write through a view of another dtype (`test_autograd_inplace_views_cross_dtype`), or a view of "
    "another dtype that is read after its base was written (`test_first_grad_fn_access_in_no_grad_mode`)":
        "refused with an error that says to write to the base; a write through `view_as_real` is recorded",
    "a write through `view_as_real(x).transpose_(...)`":
        "torch gives each cotangent to the element that would be at that position without the transpose; "
        "here the cotangent goes to the element that was written",
    "forward-mode and MKL-DNN inputs of torch's `gradcheck` (`test_gradcheck_forward_ad_batched_grad`, "
    "`test_gradcheck_forward_ad_respects_requires_grad`, `test_gradcheck_multiple_mkldnn_inputs`, "
    "`test_gradcheck_validates_input_mkldnn`)":
        "dual numbers are not supported, and MKL-DNN tensors are not tested",
    "`test_calculate_shape_util`":
        "tests an internal helper function of torch for nested tensors",
    "calling a node (`test_grad_fn_badcalls`)":
        "a node is not callable",
    "an in-place `acosh_` with grad mode on (`test_not_implemented_grad`)":
        "torch has no derivative for `acosh_`; here the derivative of `acosh` is used",
    "the memory of a sparse gradient (`test_no_grad_copy_sparse`)":
        "never shared with a tensor that a backward function has returned",
    "anomaly mode of a second derivative (`test_nested_anomaly_detect_nan`)":
        "the error names the operation and its line, but not the operation whose derivative contains it",
    "the class of the `grad_fn` of a Function (`test_return_leaf_inplace`)":
        "a class with the same name as `_backward_cls`, but another class",
    "`torch.cond` inside a context":
        "the branch that is taken is recorded as it runs; torch compiles both",
    "`while_loop`, `scan` and `map` of `torch._higher_order_ops` inside a context":
        "torch.compile, which traces these operators, refuses them",
    "how often a checkpoint calls the kernel if nothing has to be computed again "
    "(`test_nested_checkpoint_set_early_stop_no_recompution_needed`)":
        "once more than in torch",
    "a saved input that is detached in place before backward":
        "torch raises an error; here the gradient is correct",
    "statistics of a batch_norm in evaluation mode that are written before its backward pass":
        "torch raises an error or, if a call in training mode wrote them, uses the new statistics; here the "
        "gradient is correct",
    "writes of fused optimizers (`fused=True`) to parameters, and of a batch_norm in training mode to its statistics":
        "torch does not count them, and a later backward pass that needs the old values computes with the new ones; here "
        "`_version` counts them, and that pass raises an error (for statistics its gradient is correct)",
    "`requires_grad` of a view made under `no_grad` (`test_custom_function_return_view_in_nograd`, its "
    "flag)":
        "False; torch returns True for a view that has no `grad_fn`",
    "flags of views made across inference modes (`test_normal_tensor_view_output_in_inference_mode`, "
    "`test_normal_tensor_view_output_in_normal_mode`, "
    "`test_inference_mode_handle_indirect_view_on_rebase`)":
        "values and gradients are the same; `is_inference` and `grad_fn` of these views may differ",
    "`_version` of gradients, and of the results of operations that torch composes from several calls "
    "(`torch.stft`, `diff`)":
        "may count other writes; the `_version` of every other new result is 0, as in torch",
    "operations whose operands are all inference tensors that require grad":
        "elementwise operations and reductions are not differentiated, as in torch; other operations may be "
        "differentiated although torch does not differentiate them",
    "operations on sparse layouts":
        "torch differentiates each call; these calls are never merged, reused or proved",
    "NestedTensor, `__torch_dispatch__` wrapper subclasses":
        "not supported",
    "the metadata of a leaf's node is freed with the graph (`test_nested_checkpoint`, its last part)":
        "it is freed with the context",
    "`torch.autograd.grad` of recorded tensors inside `torch.func.grad`, `vjp`, `jvp`, `jacrev`, "
    "`jacfwd` or `hessian`, with `grad_outputs` that the transform differentiates":
        "refused; inside `vmap`, and with other cotangents, the same as in torch",
    "`torch.autograd.grad(create_graph=True)` inside the private `torch._vmap_internals._vmap`":
        "refused; `torch.vmap` and `is_grads_batched=True` work",
    "TorchScript code that calls `torch.autograd.grad` or `backward`, inside a context":
        "refused",
    "a `TorchDispatchMode` of the user's inside a context":
        "it sees `matmul`, `linear` and other operators that torch composes of several whole, not their parts",
    "a tensor that torch has computed, written inside a context, and views of it, used after the context":
        "the tensor is refused there, as is each result of a graph that has been left; views from before the context "
        "have the history of before the write",
    "a view of a region's intermediate, made under `no_grad` and stored":
        "`requires_grad` is False unless the intermediate itself is stored or returned; torch returns True",
    "`retain_grad` inside a transform":
        "torch raises an error; here it works",
    "backward from several threads over one graph (`test_python_thread_in_middle`)":
        "a graph belongs to one thread; other threads get an error",
    "JIT fork and join (`test_fork_join_in_middle`), C++ extensions that define autograd functions":
        "a torch-function mode does not see these calls",
    "a GradientEdge made by a `get_gradient_edge` that was imported before this library":
        "it does not keep alive the values that the rule saved",
    "the first derivative of an integer power that is zero everywhere, for example the third derivative "
    "of `x ** 2` or `x.square()`":
        "torch gives zeros; here the preceding derivative is a constant, as in torch for `x * x`, and a "
        "further `grad()` is refused",
    "a second backward pass without `retain_graph` over `torch.complex`, `addcdiv` of constants, "
    "`_foreach_mul` by a number, or `div` with `rounding_mode`":
        "torch raises an error; here no saved value is missing, and the gradient is correct",
    "the order in which leaves get their gradients, as far as hooks see it":
        "the same as in torch, except for leaves that the same context has used in another order before, or that were "
        "written in place since it used them",
    "a hook or `retain_grad` that another hook of the same backward pass sets on a tensor which "
    "`optimize=True` has merged with an equal one":
        "it sees nothing in this backward pass; gradients and later backward passes are correct",
    "MKL-DNN tensors":
        "not tested",
    "profiler, devices and streams, behaviour of plain tensors":
        "not about gradients",
}


def rows() -> dict[str, list[tuple[str, str, str]]]:
    """Group -> (behaviour, torch test, ours)."""
    for name in MODULES:
        importlib.import_module(f"tests.engine.{name}")
    table: dict[str, list[tuple[str, str, str]]] = {}
    for group in GROUPS:
        for b in group.members:
            ours = f"differs: {b.gap}" if b.gap else "same"
            table.setdefault(group.name, []).append((b.text.rstrip("."), b.torch_test, ours))
    for group_name, tests in COVERED.items():
        for torch_test, where in tests.items():
            table.setdefault(group_name, []).append((where, torch_test, "same"))
    return table


def page() -> str:
    """The text of `docs/behaviours.md`."""
    table = rows()
    behaviours = sum(len(r) for r in table.values())
    names = {t for r in table.values() for _, t, _ in r if t.startswith("test_")}
    lines = [
        "# Behaviours of torch.autograd",
        "",
        "Generated by `python -m tests.engine.covered`; do not edit.",
        "",
        f"{behaviours} behaviours, taken from {len(names)} tests of torch's own suite. Each behaviour is a small program. What",
        "the program observes (values, gradients, flags, errors) must be the same as in torch eager, without and with",
        "optimization, for plain and for `CustomTensor` leaves. A behaviour that cannot be compared with torch is a test of",
        "this library.",
        "",
    ]
    same = sum(ours == "same" for members in table.values() for _, _, ours in members)
    lines += [f"Of these, {same} are the same here. The next section lists the parts of torch's suite that are not.", ""]
    lines += ["## What differs, and why", "", f"<details><summary>{len(GAPS)} lines</summary>", "", "| in torch | here |",
              "|---|---|", *(f"| {k} | {v} |" for k, v in GAPS.items()), "", "</details>", "", "## All behaviours", ""]
    for name in sorted(table, key=str.lower):
        lines += [f"<details><summary>{name} ({len(table[name])})</summary>", "", "| behaviour | torch test | ours |",
                  "|---|---|---|",
                  *(f"| {b.replace('|', '/')} | {t.replace('|', '/')} | {o} |" for b, t, o in table[name]), "",
                  "</details>", ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
