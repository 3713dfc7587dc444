"""Torch's methods and kernels that the engine calls by their C entries."""

import torch

from autograd_opt.abi import torch_private as private
from autograd_opt.abi.kernel_names import INTO, PAIRS, PRODUCTS, SINGLES
from autograd_opt.graph.plain_values cimport same_device

NEG_K, SIN_K, COS_K = SINGLES.index("neg"), SINGLES.index("sin"), SINGLES.index("cos")
MUL_K, DIV_K, ADD_K = PAIRS.index("mul"), PAIRS.index("div"), PAIRS.index("add")
TANH_BACK_K, SIGMOID_BACK_K = PAIRS.index("tanh_backward"), PAIRS.index("sigmoid_backward")
IMUL_K, IDIV_K, IADD_K, ISUB_K = INTO.index("mul_"), INTO.index("div_"), INTO.index("add_"), INTO.index("sub_")
ADDCMUL_K, ADDCDIV_K = PRODUCTS.index("addcmul_"), PRODUCTS.index("addcdiv_")

Tensor = torch.Tensor
Parameter = torch.nn.Parameter
CPU = same_device(torch.device("cpu"))

cdef dict methods = dict(private.TensorBase.__dict__)
add, mul, div, neg = methods["add"], methods["mul"], methods["div"], methods["neg"]
iadd, imul, idiv, ineg, isub = methods["add_"], methods["mul_"], methods["div_"], methods["neg_"], methods["sub_"]
addcmul_, addcdiv_, addmm_ = methods["addcmul_"], methods["addcdiv_"], methods["addmm_"]
mm, matmul, t_method, transpose = methods["mm"], methods["matmul"], methods["t"], methods["transpose"]
get_mT, reshape, expand = methods["mT"], methods["reshape"], methods["expand"]
unsqueeze, narrow, select, new_zeros = methods["unsqueeze"], methods["narrow"], methods["select"], methods["new_zeros"]
is_neg = methods["is_neg"]
is_zero = private.is_zerotensor
get_hooks = private.backward_hooks_property

tanh_backward = private.direct(torch.ops.aten.tanh_backward.default)
sigmoid_backward = private.direct(torch.ops.aten.sigmoid_backward.default)
threshold_backward = private.direct(torch.ops.aten.threshold_backward.default)

transforms_active = private.transforms_active
