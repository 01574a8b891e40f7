"""The modules, in files by family, as in torch. The file of each is imported at its first use.

Type checkers read `__init__.pyi`, which tools/stubs.py generates from this table.
"""

from typing import Final

from ..._loading import later as _later

CLASSES: Final = {
    "nn.modules.activation": """
CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid LogSoftmax Mish PReLU RReLU
ReLU ReLU6 SELU SiLU Sigmoid Softmax Softmax2d Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold
""",
    "nn.modules.attention": "MultiheadAttention",
    "nn.modules.batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d",
    "nn.modules.container": "ModuleDict ModuleList ParameterDict ParameterList Sequential",
    "nn.modules.conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d",
    "nn.modules.distance": "CosineSimilarity PairwiseDistance",
    "nn.modules.dropout": "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
    "nn.modules.flatten": "Flatten Unflatten",
    "nn.modules.fold": "Fold Unfold",
    "nn.modules.instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
    "nn.modules.linear": "Bilinear Identity Linear",
    "nn.modules.loss": """
BCELoss BCEWithLogitsLoss CTCLoss CosineEmbeddingLoss CrossEntropyLoss GaussianNLLLoss HingeEmbeddingLoss
HuberLoss KLDivLoss L1Loss MSELoss MarginRankingLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss
MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss SoftMarginLoss TripletMarginLoss
TripletMarginWithDistanceLoss
""",
    "nn.modules.module": "Module",
    "nn.modules.normalization": "GroupNorm LayerNorm LocalResponseNorm RMSNorm",
    "nn.modules.padding": """
CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d
ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d ZeroPad1d ZeroPad2d
ZeroPad3d
""",
    "nn.modules.pooling": """
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
AvgPool1d AvgPool2d AvgPool3d FractionalMaxPool2d FractionalMaxPool3d LPPool1d LPPool2d LPPool3d MaxPool1d
MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d
""",
    "nn.modules.rnn": "GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase",
    "nn.modules.sparse": "Embedding EmbeddingBag",
    "nn.modules.transformer": """
Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
""",
    "nn.modules.upsampling": """
ChannelShuffle PixelShuffle PixelUnshuffle Upsample UpsamplingBilinear2d UpsamplingNearest2d
""",
}
"""Names of classes by their modules, relative to the package."""
__all__ = _later(globals(), CLASSES)
