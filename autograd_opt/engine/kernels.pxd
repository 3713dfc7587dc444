"""Torch's methods and kernels that the engine calls by their C entries."""

# places among the kernels that are called by their C++ entry
cdef int NEG_K, SIN_K, COS_K, MUL_K, DIV_K, ADD_K, TANH_BACK_K, SIGMOID_BACK_K
cdef int IMUL_K, IDIV_K, IADD_K, ISUB_K, ADDCMUL_K, ADDCDIV_K

cdef object Tensor, Parameter, CPU
cdef object add, mul, div, neg, iadd, imul, idiv, ineg, isub, addcmul_, addcdiv_, addmm_
cdef object mm, matmul, t_method, transpose, get_mT, reshape, expand, unsqueeze, narrow, select, new_zeros
cdef object is_neg, is_zero, get_hooks
cdef object tanh_backward, sigmoid_backward, threshold_backward

cdef object transforms_active            # any of torch.func?

cdef inline tuple sizes(object shape):
    """The arguments of a method that takes sizes: each one, which torch's parser tries first; a tuple as a whole costs it an error."""
    return <tuple>shape if len(<tuple>shape) else ((),)
