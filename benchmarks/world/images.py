"""Images: diffusion, mixers, segmentation, codebooks, similarity."""

from __future__ import annotations

import torch

from . import of, training


@of("diffusers")
def denoising():
    from diffusers import DDPMScheduler, UNet2DModel

    net = UNet2DModel(sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16),
                      norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                      up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=8)
    schedule, x = DDPMScheduler(100), torch.randn(2, 1, 8, 8)
    noise, when = torch.randn(2, 1, 8, 8), torch.tensor([10, 60])
    noisy = schedule.add_noise(x, noise, when)
    return training(net, lambda: (net(noisy, when).sample - noise).square().mean())


@of("diffusers")
def variational_autoencoder():
    from diffusers import AutoencoderKL

    net = AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, sample_size=16)
    x = torch.randn(1, 3, 16, 16)

    def loss():
        hidden = net.encode(x).latent_dist
        return (net.decode(hidden.sample()).sample - x).square().mean() + 1e-3 * hidden.kl().sum()

    return training(net, loss)


@of("mlp-mixer-pytorch")
def mixer():
    from mlp_mixer_pytorch import MLPMixer

    model = MLPMixer(image_size=16, channels=1, patch_size=4, dim=32, depth=2, num_classes=4)
    x = torch.randn(4, 1, 16, 16)
    return training(model, lambda: model(x).square().mean())


@of("lambda-networks")
def lambda_layer():
    from lambda_networks import LambdaLayer

    layer, x = LambdaLayer(dim=8, dim_out=8, r=5, dim_k=8, heads=2, dim_u=1), torch.randn(2, 8, 8, 8)
    return training(layer, lambda: layer(x).square().mean())


@of("monai")
def segmentation():
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1)
    x, y = torch.randn(2, 1, 16, 16), torch.randint(0, 2, (2, 1, 16, 16))
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    return training(net, lambda: loss(net(x), y))


@of("vector-quantize-pytorch")
def finite_codes():
    from vector_quantize_pytorch import FSQ

    layer, x = FSQ(levels=[8, 5, 5], dim=16), torch.randn(2, 32, 16)
    return training(layer, lambda: (layer(x)[0] - x).square().mean())


@of("vector-quantize-pytorch")
def residual_codes():
    from vector_quantize_pytorch import ResidualVQ

    layer, x = ResidualVQ(dim=16, num_quantizers=2, codebook_size=16, learnable_codebook=True,
                          ema_update=False), torch.randn(2, 32, 16, requires_grad=True)

    def loss():
        out, _, commitment = layer(x)
        return (out - x.detach()).square().mean() + commitment.sum()

    return training([x, *layer.parameters()], loss)


@of("pytorch-msssim")
def similarity():
    from pytorch_msssim import ssim

    x, y = torch.rand(2, 3, 24, 24, requires_grad=True), torch.rand(2, 3, 24, 24)
    return training([x], lambda: 1 - ssim(x, y, data_range=1.0))
