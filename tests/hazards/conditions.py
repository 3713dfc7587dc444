"""Single conditions of the compiled guards: each is a reason of its own, with the test that misses it.

`compiled_mutants.py` builds a copy in which each of them can be broken alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Condition:
    """`part`, once in `context`, which is once in the compiled modules.

    Broken, it is left out, or (`holds`) always true.  `killer` is a test, by file and name, or a case of `cases.py`.
    """

    context: str
    part: str
    killer: str
    holds: bool = False

    def switched(self, number: int) -> str:
        """The condition with a switch at it."""
        return f"(mutant == {number} or ({self.part}))" if self.holds else f"(mutant != {number} and ({self.part}))"


CONDITIONS: list[Condition] = []


def conditions(context: str, *parts: tuple[str, str], holds: bool = False) -> None:
    """Add conditions of one place: pairs of a part and its killer."""
    CONDITIONS.extend(Condition(context, part, killer, holds) for part, killer in parts)


LEFT = "tests/optimizer/test_left_over.py::"
NUMBERS = "tests/engine/test_numbers.py::"
ENTRY = "tests/engine/test_entry.py::"
GIVEN = "tests/engine/test_given_cotangents.py::"
DIRECT = "tests/engine/test_direct.py::"
FUNCTIONS = "tests/engine/test_torch_functions.py::"
LISTS = "tests/hazards/test_changed_lists.py::"
REGISTERED = "tests/ops/test_register_op.py::"
RETENTION = "tests/optimizer/test_retention.py::"
LOSS = "tests/ops/test_cross_entropy.py::"
NATIVE = "tests/engine/test_native.py::"
LEAVES = "tests/engine/test_leaves.py::"
CALLS = "tests/engine/test_calls.py::"
READS = "tests/engine/test_metadata.py::test_each_function_is_compared_with_its_property"
FUSED = "tests/ops/test_fused.py::"

# ----- values handed out again as they are -----------------------------------------------------------
conditions(
    "if holder.flags & (KEPT | NEEDS_ANS) != KEPT or holder.value is not value or holder.op.kernel is not None:",
    ("holder.op.kernel is not None", LEFT + "test_what_a_kernel_keeps_for_its_rule_comes_with_it"),
)
conditions(
    "if references(<PyObject *>holder.value) != 2:",
    ("references(<PyObject *>holder.value) != 2", LEFT + "test_what_was_read_off_the_graph_is_not_handed_out"),
)
conditions(
    "if not ao_strided(t) or not sole_owner(t) or ao_uses(use_count, t) != 1 or version_of(t) != 0 \\\n"
    "            or ao_needs_grad(t) or tape.exposed and tape.shares_exposed(t) or not ao_again(t):",
    ("not sole_owner(t)", LEFT + "test_memory_that_another_thread_sees_is_not_handed_out"),
    ("version_of(t) != 0", LEFT + "test_what_another_thread_has_changed_is_not_handed_out"),
    ("tape.exposed and tape.shares_exposed(t)", LEFT + "test_a_changed_tensor_is_not_handed_out"),
)
conditions(
    "return first is not None and first.spare is None and first.vn == node.vn \\\n"
    "        and not node.flags & (NO_MERGE | EXPOSED | OVERWRITTEN | PINNED | INNER | SAME) \\\n"
    "        and not first.flags & (NO_MERGE | EXPOSED | OVERWRITTEN | FREED | DEAD) \\\n"
    "        and (first.tensor != NULL or first.value is not None) and node.op.kernel is None \\\n"
    "        and type(clone) is CustomTensor and not ao_has_weakrefs(clone)",
    ("first.vn == node.vn", LEFT + "test_a_leader_by_a_pass_of_the_users_is_not_given_a_value_of_another_number"),
    ("node.op.kernel is None", LEFT + "test_what_a_kernel_keeps_for_its_rule_comes_with_it"),
    ("not ao_has_weakrefs(clone)", LEFT + "test_attributes_and_references_end_with_the_users_tensor"),
    holds=True,
)
conditions(
    "if tape is not None and not tape.guarded and isinstance(<object>t, Tensor):",
    ("tape is not None", LEFT + "test_constant_memory_that_others_see_is_not_handed_out"),
)
conditions(
    "if value is not None and (op.kernel is None or not req or extra_of(<Node>first.holder) is not None):",
    ("op.kernel is None or not req or extra_of(<Node>first.holder) is not None",
     LEFT + "test_what_a_kernel_keeps_for_its_rule_comes_with_it"),
    holds=True,
)

# ----- operands in either order ----------------------------------------------------------------------
conditions(
    "cdef bint changes = count == 2 and na is not None and nb is not None and not op.hot and op.commutes(attrs)",
    ("not op.hot", REGISTERED + "test_products_of_complex_numbers_keep_their_order"),
    ("op.commutes(attrs)", REGISTERED + "test_operands_in_either_order_are_one_value_where_they_commute"),
    holds=True,
)
conditions(
    "or not laid_out_apart(operands[0], operands[1]):",
    ("not laid_out_apart(operands[0], operands[1])",
     REGISTERED + "test_operands_in_another_order_keep_the_layout_that_they_give"),
    holds=True,
)

# ----- what is kept, and let go ----------------------------------------------------------------------
conditions(
    "if not old.flags & KEPT:\n"
    "                continue",
    ("not old.flags & KEPT", RETENTION + "test_the_peak_does_not_rise"),
)
conditions(
    "if not old.flags & NEEDS_ANS or old.flags & (FREED | DEAD):",
    ("not old.flags & NEEDS_ANS or old.flags & (FREED | DEAD)",
     RETENTION + "test_the_learned_advance_does_not_raise_the_peak"),
    holds=True,
)
conditions(
    "if size > limit:\n            return 0\n        if first is not node",
    ("size > limit", RETENTION + "test_a_written_clone_saves_nothing"),
)
conditions(
    "if heir.flags & CLONE and heir.tensor != NULL:",
    ("heir.flags & CLONE and heir.tensor != NULL", RETENTION + "test_a_shared_value_outlives_its_first_tensor"),
)

# ----- numbers kept as tensors -----------------------------------------------------------------------
conditions(
    "if dtype is not _f32 and dtype is not _f64:\n"
    "        return (number,)",
    ("dtype is not _f32 and dtype is not _f64", NUMBERS + "test_bits_are_torchs"),
)
conditions(
    "if -SMALLEST < real < SMALLEST and real != 0.0:",
    ("-SMALLEST < real < SMALLEST and real != 0.0",
     NUMBERS + "test_a_small_number_is_flushed_or_not_as_the_thread_is_set_now"),
)
conditions(
    "if not ao_strided(t) or <Py_ssize_t>ao_builtin0(dispatch_modes) != 0:",
    ("<Py_ssize_t>ao_builtin0(dispatch_modes) != 0", NUMBERS + "test_a_mode_below_sees_the_number"),
)
conditions(
    "if n.bits == bits and n.kind == <PyObject *>kind and n.dtype == <PyObject *>dtype:",
    ("n.bits == bits", NUMBERS + "test_numbers_give_way_to_others"),
    ("n.kind == <PyObject *>kind", NUMBERS + "test_a_number_is_told_apart_by_its_type_and_by_the_type_of_the_tensor"),
    holds=True,
)
conditions(
    "if nb is None and k.numbers and na.device is CPU else (b,)",
    ("k.numbers", NUMBERS + "test_powers_take_the_number"),
    holds=True,
)

# ----- cotangents that a kernel has just made --------------------------------------------------------
conditions(
    "node.flags |= FRESH | CONTIGUOUS if fresh == FILLED else FRESH",
    ("fresh == FILLED", ENTRY + "test_a_first_gradient_lies_as_its_leaf_does"),
    holds=True,
)
conditions(
    "if wanted:\n"
    "        task.fresh = task.solid = False",
    ("wanted", NATIVE + "test_captured_cotangents_are_the_users"),
)
conditions(
    "if solid and strides is None:\n        return True\n    return fits(g, strides)",
    ("strides is None", ENTRY + "test_a_kernels_gradient_is_laid_out_as_a_leaf_in_another_order"),
    holds=True,
)
conditions(
    "return fits(g, strides) and not ao_is_neg(is_neg, g)",
    ("fits(g, strides)", ENTRY + "test_a_first_gradient_lies_as_its_leaf_does"),
    holds=True,
)
conditions(
    "if strides is None and ao_contiguous(t):",
    ("ao_contiguous(t)", ENTRY + "test_the_gradient_of_a_leaf_with_gaps_has_none"),
    holds=True,
)

# ----- the entries of torch's own callables ----------------------------------------------------------
conditions(
    "return ao_is_innermost(<PyObject *>MODE)",
    ("ao_is_innermost(<PyObject *>MODE)",
     DIRECT + "test_gradients_are_cleared_past_the_mode"),
    holds=True,
)
conditions(
    "if foreign(<object>a[i]):",
    ("foreign(<object>a[i])", FUNCTIONS + "test_it_is_asked_and_what_it_computes_is_recorded"),
)

# ----- the short way of an ordinary backward ---------------------------------------------------------
conditions(
    "and (each or n > 1) or ao_builtin0(anomaly_enabled) is True:",
    ("ao_builtin0(anomaly_enabled) is True", ENTRY + "test_other_graphs_do_not"),
)
conditions(
    "graph is None or graph.anomaly or tape.optimize and (graph.verify_each or not graph.default_passes)",
    ("graph.anomaly", ENTRY + "test_other_graphs_do_not"),
    ("graph.verify_each", ENTRY + "test_other_graphs_do_not"),
    ("not graph.default_passes", ENTRY + "test_other_graphs_do_not"),
)
conditions(
    "if stack is None or stack or given is not None and transforms_active():",
    ("stack is None or stack", ENTRY + "test_first_gradients_are_memory_of_their_own"),
)
conditions(
    "if node is None or node in roots or not usual_root(tape, several[i], node):\n"
    "                return False",
    ("node in roots", GIVEN + "test_as_in_torch[twice the same-True-False]"),
    ("not usual_root(tape, several[i], node)", ENTRY + "test_other_roots_do_not"),
)
conditions(
    "return node.tape_id == tape.id and node.tensor == <PyObject *>t and node.index >= 0 "
    "and (node.view is None or not tape.late) \\\n"
    "        and node.flags & (LEAF | REQUIRES_GRAD | NOWHERE | EXPOSED) == REQUIRES_GRAD "
    "and node.op is not WRITTEN_OP \\\n"
    "        and version_of(t) == node.version and ao_plain(t)",
    ("node.tape_id == tape.id", ENTRY + "test_a_root_of_an_outer_graph_does_not"),
    ("node.flags & (LEAF | REQUIRES_GRAD | NOWHERE | EXPOSED) == REQUIRES_GRAD", ENTRY + "test_other_roots_do_not"),
    ("version_of(t) == node.version", ENTRY + "test_other_roots_do_not"),
    holds=True,
)
conditions(
    "elif len(<tuple>node.shape) == 0 and is_float(node.dtype):",
    ("len(<tuple>node.shape) == 0", ENTRY + "test_other_roots_do_not"),
    ("is_float(node.dtype)", GIVEN + "test_refused_as_by_torch[none for a complex number-True]"),
    holds=True,
)
conditions(
    "if known is not None and version_of((<tuple>known)[0]) == <uint32_t>(<tuple>known)[1]:",
    ("version_of((<tuple>known)[0]) == <uint32_t>(<tuple>known)[1]", "23 hook writes into what it sees"),
    holds=True,
)
conditions(
    "if root.op.hot != NLL or root.hooks is not None or root.device is not CPU:",
    ("root.hooks is not None", ENTRY + "test_no_hook_gets_the_seed_that_runs_share"),
)
conditions(
    "if grads is True:\n"
    "            set_grad_enabled(False)",
    ("grads is True", ENTRY + "test_hooks_run_with_gradients_off"),
)

# ----- operands that are no tensors, and lists that the caller keeps -----------------------------------
conditions(
    "and not foreigners(<tuple>args, <dict>kwargs if kwargs != NULL else None):",
    ("not foreigners(<tuple>args, <dict>kwargs if kwargs != NULL else None)",
     FUNCTIONS + "test_it_is_asked_and_what_it_computes_is_recorded"),
    holds=True,
)
conditions(
    "or not mode_innermost() or foreign(relevant_args):",
    ("foreign(relevant_args)", FUNCTIONS + "test_it_is_asked_and_what_it_computes_is_recorded"),
)
conditions(
    "return own(value) if changeable(value) else value",
    ("changeable(value)", LISTS + "test_a_list_that_is_written_after_the_call"),
)

# ----- a composed loss -------------------------------------------------------------------------------
conditions(
    'if tp == NULL or len(args) != 2 or len(kwargs) != 6 or kwargs.get("label_smoothing") != 0 \\\n'
    '                or kwargs.get("size_average") is not None or kwargs.get("reduce") is not None:',
    ('kwargs.get("label_smoothing") != 0', LOSS + "test_as_torch"),
    ('kwargs.get("size_average") is not None', LOSS + "test_as_torch"),
)
conditions(
    "if not ao_casts(any_autocast):\n            return self.uncast(args, kwargs)",
    ("not ao_casts(any_autocast)", LOSS + "test_autocast_casts_it_as_one"), holds=True,
)
conditions(
    "if reduction is None or ignored is None or not is_tensor(x) or not is_tensor(target):",
    ("reduction is None", LOSS + "test_errors_of_torch"),
)

# ----- parameters, met for the first time ------------------------------------------------------------
conditions(
    "if tape.optimize and (node.device is CPU or ao_get(get_meta, t) is not True) \\\n"
    "                and not resizable(t):",
    ("not resizable(t)", LEAVES + "test_described_as_they_are"),
)

# ----- calls of torch's modules ----------------------------------------------------------------------
CHANGED = CALLS + "test_classes_that_were_changed_do_what_they_say_now"
conditions(
    "if self.version != 0 and ao_type_version(kind) == self.version:",
    ("ao_type_version(kind) == self.version", CHANGED + "[weight]"),
    holds=True,
)
conditions(
    "if kind.__call__ is not wrapped_call_impl or private.call_of(kind) is not call_impl "
    "or kind.forward is not self.forward \\\n"
    "                or kind.__getattr__ is not module_getattr or private.has_compiled_call(kind) \\\n"
    "                or kind.__getattribute__ is not object.__getattribute__:",
    ("kind.__call__ is not wrapped_call_impl", CHANGED + "[call]"),
    ("private.call_of(kind) is not call_impl", CHANGED + "[call_impl]"),
    ("kind.forward is not self.forward", CALLS + "test_what_is_replaced_is_called"),
    ("kind.__getattr__ is not module_getattr", CHANGED + "[missing attributes]"),
    ("private.has_compiled_call(kind)", CHANGED + "[compiled]"),
    ("kind.__getattribute__ is not object.__getattribute__", CHANGED + "[attributes]"),
)
conditions(
    "if self.how == SEQUENTIAL and kind.__iter__ is not sequential_iter:",
    ("kind.__iter__ is not sequential_iter", CHANGED + "[iteration]"),
)
conditions(
    'if self.how == LINEAR and (hasattr(kind, "weight") or hasattr(kind, "bias")):',
    ('hasattr(kind, "weight")', CHANGED + "[weight]"),
    ('hasattr(kind, "bias")', CHANGED + "[bias]"),
)
conditions(
    "        if PyDict_GetItemWithError(<object>own, name) != NULL:\n            return NULL",
    ("PyDict_GetItemWithError(<object>own, name) != NULL", CALLS + "test_a_forward_of_the_objects_own_is_called"),
)
conditions(
    'found.plain = PyDict_GetItemWithError(<object>own, "weight") == NULL and '
    'PyDict_GetItemWithError(<object>own, "bias") == NULL',
    ('PyDict_GetItemWithError(<object>own, "weight") == NULL',
     CALLS + "test_attributes_of_an_object_come_before_its_parameters"),
    ('PyDict_GetItemWithError(<object>own, "bias") == NULL',
     CALLS + "test_attributes_of_an_object_come_before_its_parameters"),
    holds=True,
)
conditions(
    "return empty(&_globals) and not ao_traced()",
    ("empty(&_globals)", CALLS + "test_global_hooks_are_called"),
    ("not ao_traced()", CALLS + "test_profilers_and_modes_see_the_calls"),
    holds=True,
)
conditions(
    'if PyDict_GetItemWithError(trace_names, TRACED_MODULES) != <PyObject *>None:',
    ('PyDict_GetItemWithError(trace_names, TRACED_MODULES) != <PyObject *>None',
     CALLS + "test_while_a_trace_maps_modules_torch_calls_them"),
)
conditions(
    "if version == 0 or _traces != version:",
    ("version == 0 or _traces != version", CALLS + "test_while_a_trace_maps_modules_torch_calls_them"),
)
conditions(
    "if layer is None or own == NULL or not layer.intact() or not unwatched():",
    ("not layer.intact()", CALLS + "test_what_is_replaced_is_called"),
    ("not unwatched()", CALLS + "test_global_hooks_are_called"),
)
conditions(
    "if found == NULL or not empty(found):",
    ("not empty(found)", CALLS + "test_hooks_of_a_module_are_called"),
)
conditions(
    "if layer.how != FORWARD and len(<tuple>args) == 1 and (named == NULL or PyDict_Size(<object>named) == 0):",
    ("len(<tuple>args) == 1", CALLS + "test_other_ways_to_call"),
    ("(named == NULL or PyDict_Size(<object>named) == 0)", CALLS + "test_other_ways_to_call"),
    holds=True,
)
conditions(
    "        elif mode_innermost():\n            if layer.how == LINEAR:",
    ("mode_innermost()", CALLS + "test_profilers_and_modes_see_the_calls"),
    holds=True,
)
conditions(
    'if not found.plain or found.parameters == NULL or foreign(x) \\\n'
    '            or PyDict_GetItemWithError(functional_names, "linear") != <PyObject *>linear_function:',
    ("not found.plain", CALLS + "test_attributes_of_an_object_come_before_its_parameters"),
    ('PyDict_GetItemWithError(functional_names, "linear") != <PyObject *>linear_function',
     CALLS + "test_what_is_replaced_is_called"),
)
conditions(
    'if layer.names.get(layer.name) is not layer.function or own.get("inplace", False) is not False:',
    ("layer.names.get(layer.name) is not layer.function", CHANGED + "[relu]"),
    ('own.get("inplace", False) is not False', CALLS + "test_other_ways_to_call"),
)
conditions(
    'if not kind.__module__.startswith("torch.nn.modules."):',
    ('not kind.__module__.startswith("torch.nn.modules.")', CALLS + "test_torchs_modules_are_called_without_frames"),
)

# ----- what torch's C interface says -----------------------------------------------------------------
AGREES = (
    "return ao_dtype(t) is t.dtype and ao_shape(t) == t.shape and type(ao_shape(t)) is torch.Size \\\n"
    "        and ao_strided(t) == (t.layout is torch.strided) and ao_on_cpu(t) == t.is_cpu \\\n"
    "        and (t.layout is not torch.strided or ao_contiguous(t) == t.is_contiguous()) \\\n"
    "        and ao_is_leaf(t) == t.is_leaf and ao_is_view(t) == t._is_view() and ao_needs_grad(t) == t.requires_grad"
)
conditions(
    AGREES,
    ("ao_dtype(t) is t.dtype", READS + "[dtype-device]"),
    ("ao_strided(t) == (t.layout is torch.strided)", READS + "[layout-device]"),
    ("ao_on_cpu(t) == t.is_cpu", READS + "[device-layout]"),
    ("ao_is_leaf(t) == t.is_leaf", READS + "[leaf-view]"),
    ("ao_is_view(t) == t._is_view()", READS + "[view-leaf]"),
    ("ao_needs_grad(t) == t.requires_grad", READS + "[grad-leaf]"),
    holds=True,
)

# ----- the long short-term memory --------------------------------------------------------------------
OTHER = FUSED + "test_what_is_no_fused_lstm_is_torchs"
conditions(
    "or not fused(input) or ao_get(get_ndim, input) != 3 or onednn_enabled() is not True:",
    ("onednn_enabled() is not True", OTHER),
)
conditions(
    "if len(params) != (4 if has_biases else 2) * num_layers * (2 if rest[2] else 1) "
    "or ao_method0(get_count, input) == 0:",
    ("len(params) != (4 if has_biases else 2) * num_layers * (2 if rest[2] else 1)", OTHER),
    ("ao_method0(get_count, input) == 0", OTHER),
)
conditions(
    "return is_tensor(t) and ao_dtype(t) is FLOAT32 and ao_on_cpu(t) and ao_strided(t)",
    ("ao_dtype(t) is FLOAT32", OTHER),
    holds=True,
)
conditions(
    'if attributes["num_layers"] != 1 or attributes["bidirectional"] or not attributes["has_biases"]:',
    ('attributes["num_layers"] != 1', FUSED + "test_lstm_has_torch_s_bits"),
    ('attributes["bidirectional"]', FUSED + "test_lstm_has_torch_s_bits"),
    ('not attributes["has_biases"]', FUSED + "test_lstm_has_torch_s_bits"),
)

# ----- gradients that are written the short way ------------------------------------------------------
WRITTEN = "tests/engine/test_written_gradients.py::"
conditions(
    "if ao_get(get_hooks, t) is not None or ao_get(get_post_hooks, t) is not None:\n        return False\n    dtype",
    ("ao_get(get_hooks, t) is not None", WRITTEN + "test_hooks_set_before_the_graph_is_opened"),
    ("ao_get(get_post_hooks, t) is not None", WRITTEN + "test_hooks_set_before_the_graph_is_opened"),
)
conditions(
    "if type(old) is not Tensor or not ao_strided(old):\n            return False\n        acquire()",
    ("not ao_strided(old)", WRITTEN + "test_a_sparse_gradient_that_is_there_already"),
)
conditions(
    "if node.hooks is None and g is not None and not task.create_graph and task.tape.histories is None \\\n"
    "                    and write_grad(",
    ("not task.create_graph", WRITTEN + "test_recorded_runs_write_into_no_gradient"),
    holds=True,
)
conditions(
    "if ao_get(get_grad_dtype, t) is not dtype or not same_shape(",
    ("ao_get(get_grad_dtype, t) is not dtype", WRITTEN + "test_a_gradient_of_another_type"),
)
conditions(
    "if sole and owned(g, strides, fresh, solid):",
    ("sole", WRITTEN + "test_no_gradient_shares_memory_with_another"),
    holds=True,
)
conditions(
    "and not ao_is_zero(is_zero, g) and (fresh or sole_owner(g))",
    ("sole_owner(g)", WRITTEN + "test_no_gradient_shares_memory_with_another"),
    holds=True,
)
