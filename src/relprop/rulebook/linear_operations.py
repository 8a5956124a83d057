"""Operations that need no rule, because their gradient conserves relevance."""

from relprop import ops

# Operations that are linear in their live tensors, or that only select from them: their gradient conserves relevance.
LINEAR = {
    "view", "view_as", "reshape", "reshape_as", "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis",
    "t", "T", "mT", "H", "mH", "getitem", "select", "narrow", "slice", "squeeze", "unsqueeze", "flatten", "unflatten",
    "ravel", "expand", "expand_as", "broadcast_to", "broadcast_tensors", "tensor_split", "split_with_sizes", "cat",
    "concat", "concatenate", "stack", "hstack", "vstack", "dstack", "column_stack", "contiguous", "clone", "to",
    "type", "type_as", "float", "double", "half", "bfloat16", "cpu", "cuda", "index_select", "gather",
    "take_along_dim", "take", "masked_select", "roll", "rot90", "flip", "fliplr", "flipud", "tril", "triu",
    "diagonal", "diag", "diag_embed", "diagflat", "trace", "unfold", "fold", "repeat", "repeat_interleave", "tile",
    "index_put", "index_add", "index_copy", "index_fill", "scatter", "scatter_add", "scatter_reduce",
    "masked_scatter", "slice_scatter", "select_scatter", "copy", "where", "masked_fill", "pad", "alias", "detach",
    "data", "real", "imag", "view_as_real", "view_as_complex", "conj", "resolve_conj", "resolve_neg",
    "nan_to_num", "dropout", "alpha_dropout", "feature_dropout", "dropout1d", "dropout2d", "dropout3d", "atleast_1d",
    "atleast_2d", "atleast_3d", "meshgrid", "rounding", "activation", "add", "sub", "rsub", "neg", "positive", "sum",
    "mean", "nansum", "nanmean", "cumsum", "addcmul", "max", "min", "amax", "amin", "maximum", "minimum", "fmax",
    "fmin", "topk", "sort", "msort", "kthvalue", "median", "nanmedian", "mode", "cummax", "cummin", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "max_pool1d",
    "max_pool2d", "max_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "interpolate",
    "upsample", "upsample_nearest", "upsample_bilinear", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fft_fft", "fft_ifft", "fft_rfft", "fft_irfft",
    "fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2", "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn",
    "fft_fftshift", "fft_ifftshift", "stft", "istft", "batch_norm", "native_batch_norm", "embedding", "embedding_bag",
    "one_hot", "nll_loss", "checkpoint", "as_strided", "requires_grad_", "complex", "len", "size", "dim",
    "is_floating_point", "segment_reduce", "sparse_mm", "block_diag", "cartesian_prod", "combinations", "lerp",
    "equal_shares", "same_root_sum", "centre", "shift", "norm_bias", ops.OPENED, *ops.SOFT_MAXIMA,
    "cdist",  # a length of a difference: of degree 1
}  # fmt: skip

# Linear in eval mode, or only the last operation of a model.
HARMLESS = {"batch_norm", "native_batch_norm", "weight_norm", *ops.SOFT_MAXIMA}
