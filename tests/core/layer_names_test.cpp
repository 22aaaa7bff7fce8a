// Patterns of names, and which names are those of biases and norms.
#include <doctest/doctest.h>

#include <gradsieve/gradsieve.hpp>
#include <string>
#include <vector>

namespace gs = gradsieve;

TEST_CASE("patterns with '*' and '?'") {
  auto const matches = [](std::string const& pattern, std::string const& name) {
    return gs::fits(pattern, gs::layer{name, 10});
  };
  CHECK(matches("*bias*", "fc.bias"));
  CHECK(matches("*bias*", "bias"));
  CHECK(matches("*bias*", "a.bias.b"));
  CHECK_FALSE(matches("*bias*", "fc.bia"));
  CHECK_FALSE(matches("*bias*", ""));
  CHECK(matches("", ""));
  CHECK_FALSE(matches("", "a"));
  CHECK(matches("*", ""));
  CHECK(matches("*", "anything"));
  CHECK(matches("**", "a"));
  CHECK(matches("?", "a"));
  CHECK_FALSE(matches("?", ""));
  CHECK_FALSE(matches("?", "ab"));
  CHECK(matches("a?c", "abc"));
  CHECK(matches("a*c", "ac"));
  CHECK(matches("a*b*c", "a-b-b-c"));
  CHECK_FALSE(matches("a*b*c", "a-b-b-d"));
  CHECK(matches("*ab", "aab"));
  CHECK(matches("*aab", "aaaab"));
  CHECK(matches("*a?b*", "xxaabyy"));
  CHECK(matches("layer1.*", "layer1.0.conv"));
  CHECK_FALSE(matches("layer1.*", "layer11.0.conv"));
  CHECK(matches("a*", "a*"));
  CHECK_FALSE(matches("abc", "ab"));
  CHECK_FALSE(matches("ab", "abc"));
  CHECK_FALSE(matches("*a*a*a*a*a*a*a*b", std::string(60, 'a')));
}

TEST_CASE("whole words of names tell biases and norms") {
  for (auto const* const name : {"fc.bias",
                                 "bias",
                                 "q_bias",
                                 "in_proj_bias",
                                 "bias_ih_l0",
                                 "fc.BIAS",
                                 "LayerNorm.weight",
                                 "h.0.ln_1.weight",
                                 "layer1.0.bn1.weight",
                                 "batch_norm",
                                 "attention_norm.weight",
                                 "layer_norm2.weight",
                                 "norm_f.weight",
                                 "ln_f.weight",
                                 "conv1_bn.weight",
                                 "bn_conv1.weight",
                                 "post_attention_layernorm.weight",
                                 "RMSNorm_0/scale",
                                 "BatchNorm2d.weight",
                                 "stage1/batch_normalization_3/gamma:0",
                                 "gn.weight",
                                 "syncBatchNorm.weight",
                                 "norm"})
    CHECK_MESSAGE(gs::names_bias_or_norm(name), name);
  for (auto const* const name :
       {"", "conv1.weight", "normals.weight", "abnormal.weight", "relative_position_bias_table", "rel_pos_bias",
        "attention.relative_attention_bias.weight", "debias.weight", "unbiased", "norm1.linear.weight", "biased.weight",
        "online.weight", "lnf.weight", "features.0.1.weight"})
    CHECK_FALSE_MESSAGE(gs::names_bias_or_norm(name), name);
}

TEST_CASE("patterns are of names without what wrappers add; those that match nothing are refused") {
  gs::layout const plain{{"fc.weight", 1}, {"head.weight", 1}};
  gs::layout const wrapped{{"module.fc.weight", 1}, {"module.head.weight", 1}};
  gs::layout const compiled{{"module._orig_mod.fc.weight", 1}, {"module.head._orig_mod.weight", 1}};
  gs::layout const sharded{{"_fsdp_wrapped_module.fc._checkpoint_wrapped_module.weight", 1}, {"head.weight", 1}};
  using passes = std::vector<bool>;
  auto const of = [](gs::layout const& layers, std::string const& pattern) {
    return gs::passthrough_layers{.patterns = {pattern}}.of(layers);
  };
  for (auto const& layers : {plain, wrapped, compiled, sharded}) {
    for (auto const* const pattern : {"fc.*", "module.fc.weight", "_orig_mod.fc.weight", "module._orig_mod.fc.*",
                                      "fc._fsdp_wrapped_module.weight", "_checkpoint_wrapped_module.fc.weight"})
      CHECK_MESSAGE((of(layers, pattern) == passes{true, false}), layers[0].name);
    CHECK(of(layers, "module.*") == passes{true, true});
    for (auto const* const pattern : {"fc.wejght", "m*", "Fc.weight", "", "weight"})
      CHECK_THROWS_AS((void)of(layers, pattern), gs::invalid_argument);
    CHECK(of(layers.part({layers[0]}), "head.*") == passes{false});  // which is elsewhere
  }
  CHECK(gs::without_wrappers("my_orig_mod.weight") == "my_orig_mod.weight");
  CHECK(gs::without_wrappers("*._orig_mod._orig_mod.weight") == "*.weight");
  gs::layout const twice{{"module.module.fc.weight", 1}, {"module.module.head.weight", 1}};
  for (auto const* const pattern : {"fc.*", "module.fc.weight", "module.module.fc.weight"})
    CHECK(of(twice, pattern) == passes{true, false});

  gs::layout const has_module{{"module.fc.weight", 1}, {"head.weight", 1}};  // of its own
  CHECK(of(has_module, "module.*") == passes{true, false});
  CHECK(of(has_module, "module.fc.*") == passes{true, false});
  CHECK_THROWS_AS((void)of(has_module, "fc.*"), gs::invalid_argument);
  CHECK(of(has_module.part({has_module[0]}), "*.weight") == passes{true});
  CHECK(of(wrapped.part({wrapped[0], {"share 0 of 2", 1}}), "fc.*") == passes{true, false});
  gs::layout const tied{{"encoder.weight", 1, 2, {"decoder.weight"}}, {"head.weight", 1}};
  for (auto const* const pattern : {"encoder.*", "decoder.*", "module.decoder.weight"})
    CHECK(of(tied, pattern) == passes{true, false});
  CHECK_THROWS_WITH((void)of(plain, "fc.wejght"),
                    "gradsieve: passthrough pattern 'fc.wejght' matches none of the 2 layers, the first of which is "
                    "'fc.weight'");
  CHECK(gs::passthrough_layers{}.of(plain) == passes{false, false});  // what nobody gave need not match
}

TEST_CASE("patterns of bins go by the same rules") {
  gs::bin_lengths bins{.rules = {{{"*conv*", 50}, {"fc.*", 7}}}, .otherwise = 500};
  gs::layout const wrapped{{"module.fc.weight", 1}, {"module.head.weight", 1}};
  CHECK(bins.of(wrapped) == std::vector<std::uint32_t>{7, 500});
  CHECK_NOTHROW(bins.check_names(wrapped));  // the default rule need not match
  bins.rules[1] = {"module.head.*", 9};
  CHECK(bins.of(wrapped) == std::vector<std::uint32_t>{500, 9});
  bins.rules[1] = {"haed.*", 9};
  CHECK_THROWS_WITH(bins.check_names(wrapped),
                    "gradsieve: bins pattern 'haed.*' matches none of the 2 layers, the first of which is "
                    "'module.fc.weight'");
  CHECK_NOTHROW(bins.check_names(wrapped.part({wrapped[0]})));
}
