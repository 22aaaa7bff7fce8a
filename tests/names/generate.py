#!/usr/bin/env python3
"""Writes parameters.txt beside it: what models of torchvision, timm and transformers call their parameters.

    python3 generate.py    # with torch, torchvision, timm and transformers

Models are built from their code alone, without weights. One line is one parameter: its name with '#' for each number,
the dimensions of its shape, its role, and the class of its module. Lines that are equal then are written once.
Shapes such as (C, 1, 1) and (1, 1, C) have one dimension, as in gradsieve.torch.
Roles: `norm` for the parameters of a norm, `bias`, `matrix` for all others of two dimensions and more, else `vector`.
"""

import pathlib
import re

import timm
import torch
import torchvision
import transformers

VISION = """resnet50 vgg16_bn densenet121 mobilenet_v2 mobilenet_v3_large efficientnet_b0 efficientnet_v2_s regnet_y_400mf
convnext_tiny vit_b_16 swin_t swin_v2_t inception_v3 googlenet shufflenet_v2_x1_0 mnasnet1_0 maxvit_t
squeezenet1_1""".split()
TIMM = """resnetv2_50 nfnet_f0 levit_128s beit_base_patch16_224 mixer_b16_224 eva02_tiny_patch14_224 convmixer_768_32
coatnet_0_rw_224 gcvit_tiny xcit_nano_12_p16_224 res2net50_26w_4s tf_efficientnet_b0
resmlp_12_224 fastvit_t8""".split()
TEXT = {"Bert": "BertForPreTraining", "Roberta": "RobertaForMaskedLM", "DistilBert": "DistilBertForMaskedLM",
        "GPT2": "GPT2LMHeadModel", "T5": "T5ForConditionalGeneration", "Llama": "LlamaForCausalLM",
        "Mistral": "MistralForCausalLM", "Qwen3": "Qwen3ForCausalLM", "Gemma2": "Gemma2ForCausalLM",
        "OPT": "OPTForCausalLM", "Bloom": "BloomForCausalLM", "GPTNeoX": "GPTNeoXForCausalLM",
        "Falcon": "FalconForCausalLM", "Bart": "BartForConditionalGeneration", "DebertaV2": "DebertaV2ForMaskedLM",
        "XLNet": "XLNetLMHeadModel", "Whisper": "WhisperForConditionalGeneration", "Wav2Vec2": "Wav2Vec2ForCTC",
        "CLIP": "CLIPModel", "Mamba": "MambaForCausalLM", "Phi": "PhiForCausalLM",
        "ConvNextV2": "ConvNextV2ForImageClassification"}
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "num_decoder_layers", "n_layers")


def models():
    for name in VISION:
        options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        yield f"torchvision {name}", lambda: torchvision.models.get_model(name, weights=None, **options)
    for name in TIMM:
        yield f"timm {name}", lambda: timm.create_model(name, pretrained=False)
    for name, architecture in TEXT.items():
        config = getattr(transformers, f"{name}Config")()
        for layers in LAYERS:
            if isinstance(getattr(config, layers, None), int) and name != "Wav2Vec2":
                try:
                    setattr(config, layers, 2)
                except (AttributeError, NotImplementedError, ValueError):
                    pass
        yield f"transformers {name}", lambda: getattr(transformers, architecture)(config)


def on_meta(make):
    """Without memory for the values, where the model's constructor can do without."""
    try:
        with torch.device("meta"):
            return make()
    except (NotImplementedError, RuntimeError):
        return make()


def dimensions(parameter):
    is_vector = parameter.dim() != 2 and sum(length != 1 for length in parameter.shape) <= 1
    return 1 if is_vector else parameter.dim()


def role(name, parameter, module):
    if re.search("norm|GRN|affine", type(module).__name__, re.IGNORECASE) and (
            not isinstance(module, (torch.nn.Linear, torch.nn.modules.conv._ConvNd, torch.nn.Embedding))):
        return "norm"
    if dimensions(parameter) >= 2:
        return "matrix"
    return "bias" if re.search(r"(^|[._])bias($|_)", name) else "vector"


def lines(model):
    owners = {f"{prefix}.{key}".lstrip("."): module for prefix, module in model.named_modules()
              for key in module._parameters}
    found = {}
    for name, each in model.named_parameters():
        found.setdefault((re.sub(r"\d+", "#", name), dimensions(each), role(name, each, owners[name]),
                          type(owners[name]).__name__), None)
    return found


def main():
    text = ["# Written by generate.py with torchvision " + torchvision.__version__.split("+")[0] + ", timm " +
            timm.__version__ + ", transformers " + transformers.__version__ + ": name, dimensions, role, module."]
    for title, make in models():
        model = on_meta(make)
        text.append(f"model {title}")
        text += [" ".join(map(str, line)) for line in lines(model)]
        print(title, flush=True)
    pathlib.Path(__file__).with_name("parameters.txt").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
