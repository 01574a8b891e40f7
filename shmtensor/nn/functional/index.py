"""The module of each function, relative to the package.

Made by tools/stubs.py from the rows of operations; make it again rather than change it.
"""

from typing import Final

FUNCTIONS: Final = {
    "nn.functional.activation": """
celu celu_ elu elu_ gelu glu gumbel_softmax hardsigmoid hardswish hardtanh hardtanh_ leaky_relu leaky_relu_
log_softmax logsigmoid mish relu relu6 relu_ rrelu rrelu_ selu selu_ sigmoid silu softmax softmin softplus
softshrink softsign tanh tanhshrink threshold threshold_
""",
    "nn.functional.affine": "bilinear linear",
    "nn.functional.attention": "multi_head_attention_forward scaled_dot_product_attention",
    "nn.functional.averaging": """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d lp_pool1d
lp_pool2d lp_pool3d
""",
    "nn.functional.classification": "cross_entropy linear_cross_entropy nll_loss",
    "nn.functional.convolution": """
conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
""",
    "nn.functional.ctc": "ctc_loss",
    "nn.functional.distances": "cosine_similarity normalize pairwise_distance",
    "nn.functional.dropouts": "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout",
    "nn.functional.embeddings": "embedding embedding_bag one_hot",
    "nn.functional.fractional": """
fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d
fractional_max_pool3d_with_indices
""",
    "nn.functional.grids": "affine_grid grid_sample",
    "nn.functional.interpolation": "interpolate upsample upsample_bilinear upsample_nearest",
    "nn.functional.losses": """
binary_cross_entropy binary_cross_entropy_with_logits gaussian_nll_loss huber_loss kl_div l1_loss mse_loss
poisson_nll_loss smooth_l1_loss
""",
    "nn.functional.margins": """
cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss multilabel_margin_loss
multilabel_soft_margin_loss soft_margin_loss triplet_margin_loss triplet_margin_with_distance_loss
""",
    "nn.functional.normalization": """
batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm
""",
    "nn.functional.padding": "pad",
    "nn.functional.pooling": """
adaptive_max_pool1d adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices
adaptive_max_pool3d adaptive_max_pool3d_with_indices max_pool1d max_pool1d_with_indices max_pool2d
max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d
""",
    "nn.functional.shuffling": "channel_shuffle native_channel_shuffle pixel_shuffle pixel_unshuffle",
    "nn.functional.unfolding": "fold unfold",
}
"""Functions of `shmtensor.nn.functional`."""
