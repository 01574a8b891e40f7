"""The module of each function and method of tensors, relative to the package.

Made by tools/stubs.py from the rows of operations; make it again rather than change it.
"""

from typing import Final

FUNCTIONS: Final = {
    "_tensor.activations": """
celu celu_ hardshrink log_softmax prelu relu selu selu_ softmax threshold threshold_
""",
    "_tensor.arithmetic": "addcdiv addcmul float_power frexp heaviside ldexp positive rsub",
    "_tensor.bounds": "clamp_max clamp_min isneginf isposinf nan_to_num",
    "_tensor.combining": "block_diag cartesian_prod combinations constant_pad_nd diagflat vander",
    "_tensor.complex_parts": """
angle complex conj conj_physical isreal polar resolve_conj resolve_neg sgn view_as_complex
view_as_complex_copy view_as_real view_as_real_copy
""",
    "_tensor.convolutions": "conv2 conv3 xcorr2 xcorr3",
    "_tensor.copies": """
alias_copy as_strided_copy detach_copy diagonal_copy expand_copy narrow_copy permute_copy select_copy
slice_copy split_copy split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy
unsqueeze_copy view_copy
""",
    "_tensor.creation": """
as_tensor asarray diag empty empty_like eye from_numpy full full_like ones ones_like scalar_tensor tensor
zeros zeros_like
""",
    "_tensor.distances": "cdist corrcoef cov pdist",
    "_tensor.dlpack": "from_dlpack from_torch to_dlpack",
    "_tensor.einsums": "einsum",
    "_tensor.elementwise": """
abs absolute acos acosh add arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh
bitwise_and bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor cbrt ceil
cinv copysign cos cosh deg2rad div divide eq exp exp2 expm1 fix floor floor_divide fmax fmin fmod frac gcd ge
greater greater_equal gt hypot isfinite isinf isnan lcm le less less_equal log log10 log1p log2 logaddexp
logaddexp2 logical_and logical_not logical_or logical_xor lt maximum minimum mul multiply ne neg negative
nextafter not_equal pow rad2deg reciprocal remainder round rsqrt sigmoid sign signbit sin sinh sqrt square sub
subtract tan tanh true_divide trunc
""",
    "_tensor.histograms": "histogram histogramdd",
    "_tensor.indexing": "nonzero_static take_along_dim tril_indices triu_indices unravel_index",
    "_tensor.inspection": """
__array_namespace_info__ astype can_cast finfo iinfo is_complex is_floating_point is_nonzero is_same_size
is_signed is_tensor isdtype promote_types result_type
""",
    "_tensor.integration": "cumulative_trapezoid gradient trapezoid trapz",
    "_tensor.joining": """
cat column_stack concat concatenate diag_embed dstack hstack meshgrid repeat repeat_interleave roll row_stack
stack tile vstack
""",
    "_tensor.layouts": "empty_permuted empty_strided frombuffer",
    "_tensor.logarithms": "logadd logsub",
    "_tensor.low_rank": "pca_lowrank svd_lowrank",
    "_tensor.masks": "argwhere clamp clip lerp masked_fill masked_select nonzero where",
    "_tensor.nan_statistics": "nanmedian nanquantile",
    "_tensor.parts": """
chunk dsplit hsplit split split_with_sizes tensor_split unbind unsafe_chunk unsafe_split
unsafe_split_with_sizes unstack vsplit
""",
    "_tensor.products": """
addbmm addmm addmv addr baddbmm bmm chain_matmul cross dot ger inner kron matmul mm mv outer tensordot trace
vdot vecdot
""",
    "_tensor.qualities": "fill get_device is_conj is_inference is_neg is_storage numel typename",
    "_tensor.ranges": "arange linspace logspace range",
    "_tensor.scattering": """
as_strided_scatter diagonal_scatter index_put index_reduce masked_scatter put scatter_reduce select_scatter
slice_scatter
""",
    "_tensor.selection": """
allclose array_equal bincount bucketize equal gather index_add index_copy index_fill index_select isclose isin
scatter scatter_add searchsorted take take_along_axis tril triu unique_all unique_counts unique_inverse
unique_values
""",
    "_tensor.shapes": """
adjoint as_strided atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_shapes broadcast_tensors
broadcast_to clone contiguous detach diagonal expand_dims flatten flip fliplr flipud imag matrix_transpose
moveaxis movedim narrow permute permute_dims ravel real reshape rot90 select squeeze swapaxes swapdims t
transpose unflatten unfold unsqueeze
""",
    "_tensor.sorting": "argsort kthvalue msort sort topk",
    "_tensor.special": """
digamma erf erfc erfinv i0 igamma igammac lgamma logit mvlgamma ndtri polygamma sinc xlogy
""",
    "_tensor.spectrograms": "istft stft",
    "_tensor.spread": "std_mean var_mean",
    "_tensor.statistical": """
all amax amin aminmax any argmax argmin bhistc count_nonzero cummax cummin cumprod cumsum cumulative_prod
cumulative_sum diff dist hash_tensor histc logcumsumexp logsumexp match max mean median min mode nanmean
nansum prod quantile renorm std sum var
""",
    "_tensor.uniques": "unique unique_consecutive",
    "_tensor.windows": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    "linalg.routines": """
btrifact btrisolve cholesky cholesky_inverse cholesky_solve det geev gels geqrf gesv gesvd getri inverse
logdet lu lu_solve lu_unpack matrix_exp matrix_power norm orgqr ormqr pinverse potrf potri potrs pstrf qr
slogdet svd syev symeig triangular_solve trtrs
""",
    "random.counts": "binomial poisson",
    "random.distributions": "bernoulli normal",
    "random.sampling": "multinomial rand rand_like randint randint_like randn randn_like randperm",
}
"""Functions of `shmtensor`."""
METHODS: Final = {
    "_tensor.activations": "hardshrink log_softmax prelu relu relu_ softmax",
    "_tensor.arithmetic": """
__div__ __idiv__ __pos__ __rdiv__ addcdiv addcdiv_ addcmul addcmul_ float_power float_power_ frexp heaviside
heaviside_ ldexp ldexp_ positive
""",
    "_tensor.bounds": "clamp_max clamp_max_ clamp_min clamp_min_ isneginf isposinf nan_to_num nan_to_num_",
    "_tensor.combining": "combinations diagflat",
    "_tensor.complex_parts": """
angle conj conj_physical conj_physical_ isreal resolve_conj resolve_neg sgn sgn_
""",
    "_tensor.conversions": """
bfloat16 bool byte cdouble cfloat char complex_double complex_float cpu cuda double float float8_e4m3fn
float8_e5m2 half int long new new_empty new_empty_strided new_full new_ones new_tensor new_zeros record_stream
short to type type_as uint16 uint32 uint64
""",
    "_tensor.convolutions": "conv2 conv3 xcorr2 xcorr3",
    "_tensor.copies": "narrow_copy",
    "_tensor.creation": "diag",
    "_tensor.distances": "corrcoef cov",
    "_tensor.dlpack": "__dlpack__ __dlpack_device__ torch",
    "_tensor.elementwise": """
__abs__ __add__ __and__ __eq__ __floordiv__ __ge__ __gt__ __iadd__ __iand__ __ifloordiv__ __ilshift__ __imod__
__imul__ __invert__ __ior__ __ipow__ __irshift__ __isub__ __itruediv__ __ixor__ __le__ __lshift__ __lt__
__mod__ __mul__ __ne__ __neg__ __or__ __pow__ __radd__ __rand__ __rfloordiv__ __rlshift__ __rmod__ __rmul__
__ror__ __round__ __rpow__ __rrshift__ __rshift__ __rsub__ __rtruediv__ __rxor__ __sub__ __truediv__ __xor__
abs abs_ absolute absolute_ acos acos_ acosh acosh_ add add_ arccos arccos_ arccosh arccosh_ arcsin arcsin_
arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ asin asin_ asinh asinh_ atan atan2 atan2_
atan_ atanh atanh_ bitwise_and bitwise_and_ bitwise_invert bitwise_invert_ bitwise_left_shift
bitwise_left_shift_ bitwise_not bitwise_not_ bitwise_or bitwise_or_ bitwise_right_shift bitwise_right_shift_
bitwise_xor bitwise_xor_ cbrt cbrt_ ceil ceil_ cinv cinv_ copysign copysign_ cos cos_ cosh cosh_ deg2rad
deg2rad_ div div_ divide divide_ eq eq_ exp exp2 exp2_ exp_ expm1 expm1_ fix fix_ floor floor_ floor_divide
floor_divide_ fmax fmax_ fmin fmin_ fmod fmod_ frac frac_ gcd gcd_ ge ge_ greater greater_ greater_equal
greater_equal_ gt gt_ hypot hypot_ isfinite isinf isnan lcm lcm_ le le_ less less_ less_equal less_equal_ log
log10 log10_ log1p log1p_ log2 log2_ log_ logaddexp logaddexp2 logaddexp2_ logaddexp_ logical_and logical_and_
logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ lt lt_ maximum maximum_ minimum
minimum_ mul mul_ multiply multiply_ ne ne_ neg neg_ negative negative_ nextafter nextafter_ not_equal
not_equal_ pow pow_ rad2deg rad2deg_ reciprocal reciprocal_ remainder remainder_ round round_ rsqrt rsqrt_
sigmoid sigmoid_ sign sign_ signbit sin sin_ sinh sinh_ sqrt sqrt_ square square_ sub sub_ subtract subtract_
tan tan_ tanh tanh_ true_divide true_divide_ trunc trunc_
""",
    "_tensor.gradients": "backward register_hook register_post_accumulate_grad_hook retain_grad",
    "_tensor.histograms": "histogram",
    "_tensor.in_place": """
as_strided_ cumprod_ cumsum_ fill_diagonal_ squeeze_ swapaxes_ swapdims_ t_ transpose_ tril_ triu_ unsqueeze_
""",
    "_tensor.indexing": "nonzero_static take_along_dim",
    "_tensor.inspection": """
__array_namespace__ astype is_complex is_floating_point is_nonzero is_same_size is_signed
""",
    "_tensor.joining": "diag_embed repeat_interleave roll tile",
    "_tensor.mapping": "apply_ map2_ map_",
    "_tensor.masks": """
argwhere clamp clamp_ clip clip_ lerp lerp_ masked_fill masked_fill_ masked_scatter_ masked_select nonzero
where
""",
    "_tensor.nan_statistics": "nanmedian nanquantile",
    "_tensor.numpy_protocols": "__array_function__ __array_ufunc__",
    "_tensor.parts": """
chunk dsplit hsplit split split_with_sizes tensor_split unbind unsafe_chunk unsafe_split
unsafe_split_with_sizes unstack vsplit
""",
    "_tensor.products": """
__imatmul__ __matmul__ __rmatmul__ addbmm addbmm_ addmm addmm_ addmv addmv_ addr addr_ baddbmm baddbmm_ bmm
cross dot ger inner kron matmul mm mv outer trace vdot
""",
    "_tensor.qualities": """
copy get_device ipu is_conj is_inference is_neg is_pinned is_set_to ndimension pin_memory repeat
requires_grad_ storage_type untyped_storage xpu
""",
    "_tensor.resizing": "resize_ resize_as_ set_",
    "_tensor.scattering": """
as_strided_scatter diagonal_scatter index_add_atomic_ index_put index_put_ index_reduce index_reduce_
masked_scatter put scatter_reduce scatter_reduce_ select_scatter slice_scatter
""",
    "_tensor.selection": """
allclose array_equal bincount equal gather index_add index_add_ index_copy index_copy_ index_fill index_fill_
index_select isclose put_ scatter scatter_ scatter_add scatter_add_ take take_along_axis tril triu
""",
    "_tensor.shapes": """
adjoint as_strided broadcast_to clone contiguous diagonal expand expand_as expand_dims flatten flip fliplr
flipud matrix_transpose moveaxis movedim narrow permute ravel reshape reshape_as rot90 select squeeze swapaxes
swapdims t transpose unflatten unfold unsqueeze view view_as
""",
    "_tensor.sorting": "argsort kthvalue msort sort topk",
    "_tensor.special": """
digamma digamma_ erf erf_ erfc erfc_ erfinv erfinv_ i0 i0_ igamma igamma_ igammac igammac_ lgamma lgamma_
logit logit_ mvlgamma mvlgamma_ polygamma polygamma_ sinc sinc_ xlogy xlogy_
""",
    "_tensor.spectrograms": "istft stft",
    "_tensor.statistical": """
all amax amin aminmax any argmax argmin bhistc count_nonzero cummax cummin cumprod cumsum cumulative_prod
cumulative_sum diff dist hash_tensor histc logcumsumexp logsumexp max mean median min mode nanmean nansum prod
quantile renorm renorm_ std sum var
""",
    "_tensor.to_size": "sum_to_size",
    "_tensor.uniques": "unique unique_consecutive",
    "linalg.determinants": "det slogdet",
    "linalg.functions": "matrix_exp matrix_power",
    "linalg.routines": """
btrifact btrisolve cholesky cholesky_inverse cholesky_solve geev gels geqrf gesv gesvd getri inverse logdet lu
lu_solve norm orgqr ormqr pinverse potrf potri potrs pstrf qr svd syev symeig triangular_solve trtrs
""",
    "random.distributions": """
bernoulli bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_
""",
    "random.sampling": "multinomial",
}
"""Methods of tensors, operators of Python among them."""
PROPERTIES: Final = {
    "_tensor.parts": "H mH",
    "_tensor.qualities": "is_cpu is_cuda is_quantized is_sparse",
    "_tensor.shapes": "T imag mT real",
}
"""Properties of tensors."""
