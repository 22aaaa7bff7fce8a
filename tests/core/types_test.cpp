// Numbers, layouts, densities, recipes and their text.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <gradsieve/core/random.hpp>
#include <gradsieve/gradsieve.hpp>
#include <iomanip>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <sstream>
#include <type_traits>
#include <vector>

#include "data.hpp"

namespace gs = gradsieve;

namespace {

template <class T>
std::string text(T const& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

/// A 16-bit format by its definition: the value of a positive finite pattern.
struct half_format {
  using type = gs::float16;
  static constexpr std::uint32_t infinite = 0x7C00;
  static double value(std::uint32_t bits) {
    auto const exponent = static_cast<int>(bits >> 10);
    auto const fraction = static_cast<double>(bits & 0x3FFu);
    return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  }
};
struct bfloat_format {
  using type = gs::bfloat16;
  static constexpr std::uint32_t infinite = 0x7F80;
  static double value(std::uint32_t bits) {
    auto const exponent = static_cast<int>(bits >> 7);
    auto const fraction = static_cast<double>(bits & 0x7Fu);
    return exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
  }
};

/// The pattern nearest to x, ties to even, by search. Infinity counts as the next value above the largest.
template <class Format>
std::uint32_t nearest(float x) {
  std::uint32_t const sign = std::signbit(x) ? 0x8000u : 0u;
  auto const size = std::fabs(static_cast<double>(x));
  std::uint32_t low = 0;
  std::uint32_t high = Format::infinite;
  if (size >= Format::value(high)) return sign | high;
  while (high - low > 1) {
    auto const middle = (low + high) / 2;
    (Format::value(middle) <= size ? low : high) = middle;
  }
  double const down = size - Format::value(low);
  double const up = Format::value(high) - size;
  return sign | (down < up || (down == up && low % 2 == 0) ? low : high);
}

}  // namespace

TEST_CASE_TEMPLATE("every 16-bit pattern becomes the float that it stands for", Format, half_format, bfloat_format) {
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    float const x = gs::to_float(typename Format::type{static_cast<std::uint16_t>(bits)});
    std::uint32_t const magnitude = bits & 0x7FFFu;
    bool good = std::signbit(x) == (bits > 0x7FFF);
    if (magnitude > Format::infinite)
      good = good && std::isnan(x);
    else if (magnitude == Format::infinite)
      good = good && std::isinf(x);
    else
      good = good && std::fabs(static_cast<double>(x)) == Format::value(magnitude);
    wrong += good ? 0 : 1;
  }
  CHECK(wrong == 0);
#if defined(__FLT16_MAX__)
  if constexpr (std::is_same_v<Format, half_format>)
    for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
      auto const pattern = static_cast<std::uint16_t>(bits);
      auto const x = static_cast<float>(std::bit_cast<_Float16>(pattern));
      wrong += x == gs::to_float(gs::float16{pattern}) || std::isnan(x) ? 0 : 1;
    }
  CHECK(wrong == 0);
#endif
}

TEST_CASE_TEMPLATE("every 16-bit pattern survives the way to float and back", Format, half_format, bfloat_format) {
  using type = typename Format::type;
  std::uint32_t wrong = 0;
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    type const x{static_cast<std::uint16_t>(bits)};
    auto const back = gs::from_float<type>(gs::to_float(x));
    bool const nan = (bits & 0x7FFFu) > Format::infinite;
    wrong += nan ? !std::isnan(gs::to_float(back)) : back != x;
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("from_float rounds to the nearest, ties to even", Format, half_format, bfloat_format) {
  using type = typename Format::type;
  std::uint32_t wrong = 0;
  auto const check = [&](float x) {
    for (float const y : {x, -x}) {
      auto const got = gs::from_float<type>(y);
      wrong += got.bits != nearest<Format>(y) ? 1u : 0u;
#if defined(__FLT16_MAX__)
      if constexpr (std::is_same_v<Format, half_format>)
        wrong += got.bits != std::bit_cast<std::uint16_t>(static_cast<_Float16>(y)) ? 1u : 0u;
#endif
    }
  };
  float const largest = std::numeric_limits<float>::max();
  for (std::uint32_t bits = 0; bits < Format::infinite;
       ++bits) {  // each value, each half-way point, and both neighbours
    auto const here = static_cast<float>(Format::value(bits));
    double const middle = (Format::value(bits) + Format::value(bits + 1)) / 2;
    for (float const x : {here, static_cast<float>(middle)}) {
      check(x);
      check(std::nextafter(x, 0.0f));
      check(std::nextafter(x, largest));
    }
  }
  data::generator random{7};
  for (int i = 0; i < 300'000; ++i) {
    auto const x = std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()));
    if (!std::isnan(x)) check(x);
  }
  for (float const x :
       {0.0f, largest, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min()})
    check(x);
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("NaN stays NaN, with its sign, whatever its payload", Format, half_format, bfloat_format) {
  for (std::uint32_t const payload : {1u, 0x1000u, 0x7FFFu, 0x8000u, 0xFFFFu, 0x1'0000u, 0x40'0000u, 0x7F'FFFFu})
    for (std::uint32_t const sign : {0u, 0x8000'0000u}) {
      auto const x = std::bit_cast<float>(sign | 0x7F80'0000u | payload);
      auto const got = gs::to_float(gs::from_float<typename Format::type>(x));
      CHECK(std::isnan(got));
      CHECK(std::signbit(got) == (sign != 0));
    }
}

TEST_CASE("a residual's bfloat16: exact in the mean, never infinite, never another value than a neighbour") {
  auto const stored = [](float x, std::uint32_t noise) { return gs::to_float(gs::to_stored<gs::bfloat16>(x, noise)); };
  for (float const x : {1.0f + 0x1p-12f, -3.14159f, 0x1.234566p-130f, 1e-45f, 65504.0f, -0.3f}) {
    double sum = 0;
    float const toward_zero = stored(x, 0);
    float const away =
        gs::to_float(gs::bfloat16{static_cast<std::uint16_t>(gs::to_stored<gs::bfloat16>(x, 0).bits + 1)});
    bool neighbours = true;
    for (std::uint32_t noise = 0; noise < 65536; ++noise) {
      float const rounded = stored(x, noise);
      neighbours = neighbours && (rounded == toward_zero || rounded == away);
      sum += static_cast<double>(rounded);
    }
    CHECK(neighbours);
    CHECK(sum / 65536 == static_cast<double>(x));
  }
  for (std::uint32_t const noise : {0u, 1u, 0x8000u, 0xFFFFu}) {
    for (float const x : {0.0f, -0.0f, 1.0f, -0x1p-133f, gs::to_float(gs::bfloat16{0x7F7F})})
      CHECK(std::bit_cast<std::uint32_t>(stored(x, noise)) == std::bit_cast<std::uint32_t>(x));
    CHECK(stored(std::numeric_limits<float>::max(), noise) == gs::to_float(gs::bfloat16{0x7F7F}));
    CHECK(stored(-std::numeric_limits<float>::max(), noise) == -gs::to_float(gs::bfloat16{0x7F7F}));
    CHECK(stored(-std::numeric_limits<float>::infinity(), noise) == -std::numeric_limits<float>::infinity());
  }
  CHECK(gs::to_stored<float>(0.1f) == 0.1f);
}

TEST_CASE("known 16-bit values") {
  CHECK(gs::from_float<gs::float16>(1.0f).bits == 0x3C00);
  CHECK(gs::from_float<gs::float16>(65519.99f).bits == 0x7BFF);
  CHECK(gs::from_float<gs::float16>(65520.0f).bits == 0x7C00);
  CHECK(gs::from_float<gs::float16>(-0x1p-24f).bits == 0x8001);
  CHECK(gs::from_float<gs::float16>(0x1p-25f).bits == 0);
  CHECK(gs::from_float<gs::bfloat16>(1.0f).bits == 0x3F80);
  CHECK(gs::from_float<gs::bfloat16>(std::numeric_limits<float>::max()).bits == 0x7F80);
  static_assert(gs::from_float<gs::float16>(gs::to_float(gs::float16{0x0001})).bits == 0x0001);
}

TEST_CASE("keys order floats as their magnitudes") {
  float const inf = std::numeric_limits<float>::infinity();
  float const nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(gs::magnitude_key(0.0f) == 0);
  CHECK(gs::magnitude_key(-0.0f) == 0);
  CHECK(gs::magnitude_key(-inf) == gs::infinite_key);
  CHECK(gs::magnitude_key(nan) > gs::infinite_key);
  CHECK(gs::magnitude_key(-nan) > gs::infinite_key);
  CHECK(gs::magnitude_key(-1.5f) == gs::magnitude_key(1.5f));
  CHECK(gs::magnitude_of(gs::magnitude_key(-1.5f)) == 1.5f);
  CHECK(gs::abs(-0x1p-149f) == 0x1p-149f);

  data::generator random{3};
  std::vector<float> values{0.0f, 0x1p-149f, 0x1p-148f, 0x1.fffffcp-127f, 0x1p-126f, 1.0f, inf};
  while (values.size() < 4000) {
    auto const bits = static_cast<std::uint32_t>(random.bits());
    auto const x = std::bit_cast<float>(values.size() % 4 == 0 ? bits & 0x807F'FFFFu : bits);  // a quarter subnormal
    if (!std::isnan(x)) values.push_back(x);
  }
  std::uint32_t wrong = 0;
  for (float const a : values)
    for (float const b : values)
      wrong += (std::fabs(a) < std::fabs(b)) != (gs::magnitude_key(a) < gs::magnitude_key(b));
  CHECK(wrong == 0);
  for (float const x : values) wrong += gs::is_finite(x) != std::isfinite(x) || gs::is_finite(nan);
  for (int n = 0; n < 4000; ++n) {
    auto const bits = random.bits();
    auto const x = std::bit_cast<double>(n % 4 == 0 ? bits | 0x7FF0'0000'0000'0000u : bits);  // a quarter not finite
    wrong += gs::is_finite(x) != std::isfinite(x);
  }
  for (double const x : {0.0, -0x1p-1074, -0x1.fffffffffffffp1023, std::numeric_limits<double>::infinity()})
    wrong += gs::is_finite(x) != std::isfinite(x);
  CHECK(wrong == 0);
}

TEST_CASE("multiply_add rounds twice") {
  // The exact product is 1 + 2^-11 + 2^-24; rounded to a float it loses the last bit, fused it would not.
  float const x = 1.0f + 0x1p-12f;
  float const volatile hidden = x;
  CHECK(gs::multiply_add(hidden, hidden, -(1.0f + 0x1p-11f)) == 0.0f);
}

// ---- Layouts ---------------------------------------------------------------------------------------------

TEST_CASE("a layout sums its layers") {
  gs::layout const layers{{"a", 3}, {"empty", 0}, {"b", 4}};
  CHECK(layers.size() == 7);
  CHECK(layers.count() == 3);
  CHECK(layers.offset(0) == 0);
  CHECK(layers.offset(1) == 3);
  CHECK(layers.offset(2) == 3);
  CHECK(layers[2].name == "b");
  CHECK(gs::layout{}.size() == 0);
  CHECK(gs::layout::flat(5).size() == 5);
  CHECK(gs::layout(7, {{"a", 3}, {"b", 4}}).count() == 2);
}

TEST_CASE("a layout refuses 2^32 elements, and says where") {
  CHECK(gs::layout{{"most", 4'294'967'295u}}.size() == 4'294'967'295u);
  CHECK_THROWS_WITH_AS((gs::layout{{"fc", 4'294'967'296u}}), doctest::Contains("'fc' (4294967296 elements)"),
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::layout{{"conv", 4'294'967'295u}, {"bias", 1}}), doctest::Contains("'bias'"),
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::layout{{"conv", 5}, {"huge", ~std::uint64_t{0}}}), doctest::Contains("fewer than 2^32"),
                       gs::invalid_argument);
}

TEST_CASE("a layout is held against the gradient's size") {
  CHECK_THROWS_WITH_AS((gs::layout(8, {{"a", 3}, {"b", 4}})),
                       doctest::Contains("sum to 7 elements, the gradient has 8"), gs::invalid_argument);
}

TEST_CASE("different layouts have different hashes") {
  std::vector<gs::layout> const layouts{{},
                                        {{"", 0}},
                                        {{"a", 1}},
                                        {{"b", 1}},
                                        {{"a", 2}},
                                        {{"a", 256}},
                                        {{"a", 1}, {"a", 1}},
                                        {{"a", 1}, {"b", 1}},
                                        {{"b", 1}, {"a", 1}},
                                        {{"ab", 1}, {"", 1}},
                                        {{"", 1}, {"ab", 1}},
                                        {{"a", 2}, {"", 0}},
                                        {{"a", 0}, {"", 2}}};
  std::set<std::uint64_t> seen;
  for (auto const& each : layouts) seen.insert(each.hash());
  CHECK(seen.size() == layouts.size());
  CHECK(gs::layout{{"a", 1}}.hash() == gs::layout{{"a", 1}}.hash());
  CHECK(gs::layout{{"a", 1}} == gs::layout{{"a", 1}});
  CHECK_FALSE(gs::layout{{"a", 1}} == gs::layout{{"b", 1}});
  CHECK(gs::layout{{"conv1.weight", 9408}}.hash() == 0x77c1'037e'2753'3830u);  // the same on every machine
}

// ---- Layers that pass through ----------------------------------------------------------------------------

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

TEST_CASE("all biases and norms of published models pass through by default, and no matrix") {
  // Numbered modules, and those whose norms have names of their own, need the dimensions.
  std::set<std::string> const need_dimensions{"timm convmixer_768_32",
                                              "timm fastvit_t8",
                                              "timm res2net50_26w_4s",
                                              "timm xcit_nano_12_p16_224",
                                              "transformers ConvNextV2",
                                              "transformers XLNet",
                                              "torchvision convnext_tiny",
                                              "torchvision efficientnet_b0",
                                              "torchvision efficientnet_v2_s",
                                              "torchvision maxvit_t",
                                              "torchvision mnasnet1_0",
                                              "torchvision mobilenet_v2",
                                              "torchvision mobilenet_v3_large",
                                              "torchvision regnet_y_400mf",
                                              "torchvision resnet50",
                                              "torchvision shufflenet_v2_x1_0",
                                              "torchvision swin_t",
                                              "torchvision swin_v2_t",
                                              "torchvision vgg16_bn"};
  std::ifstream file{GRADSIEVE_NAMES};
  std::string line, model;
  std::size_t models = 0, parameters = 0;
  std::set<std::string> failed_by_words;
  while (std::getline(file, line)) {
    std::istringstream words{line};
    std::string name, dimensions, role, module;
    words >> name >> dimensions >> role >> module;
    if (name == "#") continue;
    if (name == "model") {
      model = dimensions + " " + role;
      ++models;
      continue;
    }
    ++parameters;
    std::ranges::replace(name, '#', '1');
    bool const passes = role == "norm" || role == "bias";
    auto const by = [&](std::uint32_t known) { return bool{gs::passthrough_layers{}.of({{name, 100, known}})[0]}; };
    if (role != "vector" && by(static_cast<std::uint32_t>(std::stoi(dimensions))) != passes)
      FAIL_CHECK(model, ", by dimensions: ", line);
    if (role != "vector" && by(0) != passes) failed_by_words.insert(model);
  }
  CHECK(models >= 25);
  CHECK(parameters >= 500);
  CHECK(failed_by_words == need_dimensions);
}

TEST_CASE("by default layers of one dimension pass through; where that is not known, names tell") {
  gs::layout const layers{{"features.0.1.weight", 8, 1},
                          {"norm.weight", 8, 2},
                          {"scale", 1, 1},
                          {"table.bias", 8, 3},
                          {"x", 8},
                          {"x.bias", 8}};
  CHECK(gs::passthrough_layers{}.of(layers) == std::vector<bool>{true, false, true, false, false, true});
  CHECK(gs::passthrough_layers{.patterns = {gs::biases_and_norms, "x*"}}.of(layers) ==
        std::vector<bool>{true, false, true, false, true, true});
  CHECK(gs::passthrough_layers{.patterns = {"norm.weight"}}.of(layers) ==
        std::vector<bool>{false, true, false, false, false, false});
  CHECK(gs::describe_passing(layers, {}) ==
        "3 of 6 layers pass through, 17 of 41 elements: features.0.1.weight, scale, x.bias");
  CHECK(layers ==
        gs::layout{
            {"features.0.1.weight", 8}, {"norm.weight", 8}, {"scale", 1}, {"table.bias", 8}, {"x", 8}, {"x.bias", 8}});
}

TEST_CASE("a weight that is as large as its bias belongs to a norm, whatever its module is called") {
  gs::layout const layers{{"features.0.0.weight", 864},
                          {"features.0.1.weight", 32},
                          {"features.0.1.bias", 32},
                          {"fc.weight", 320},
                          {"fc.bias", 10},
                          {"other.weight", 10}};
  CHECK(gs::passthrough_layers{}.of(layers) == std::vector<bool>{false, true, true, false, true, false});
  CHECK(gs::passthrough_layers{}.of(layers.part({layers[3], layers[1]})) == std::vector<bool>{false, true});
  CHECK(gs::passthrough_layers{}.of(layers.part({{"fc.weight", 10}, {"fc.bias", 10}})) ==
        std::vector<bool>{false, true});  // a piece of a matrix
}

TEST_CASE("all biases and norms of the committed traces pass through, by names and sizes") {
  auto const passing = [](std::string const& trace) {
    std::ifstream file{GRADSIEVE_TRACES "/" + trace + ".csv"};
    std::vector<gs::layer> layers;
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      auto const comma = line.find(',');
      layers.push_back({line.substr(0, comma), std::stoull(line.substr(comma + 1)) / 4});
    }
    return gs::passing(gs::layout{layers}, {}).size();
  };
  CHECK(passing("resnet50") == 2 * 53 + 1);  // batch norms, and the bias of the classifier
  CHECK(passing("densenet161") == 2 * 161 + 1);
  CHECK(passing("inception_v4") == 2 * 149 + 1);
  CHECK(passing("vgg16") == 16);
  CHECK(passing("gpt2") == 2 * 25 + 12 * 4);
  CHECK(passing("lstm") == 5);
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

TEST_CASE("biases, norms and small layers pass through; the rest is selected from") {
  gs::layout const layers{{"conv", 100}, {"conv.bias", 5}, {"none", 0}, {"batch_norm", 7}, {"fc", 8}};
  gs::detail::layer_split const split{layers, gs::passthrough_layers{}};
  CHECK(split.selected == std::vector<gs::range>{{0, 100}, {112, 8}});
  CHECK(split.passthrough == std::vector<gs::range>{{100, 5}, {105, 7}});
  CHECK(split.selected_elements == 108);
  CHECK(split.passthrough_elements == 12);
  CHECK(gs::detail::layer_split{layers, gs::passthrough_layers{.patterns = {}}}.passthrough.empty());
  gs::detail::layer_split const small{layers, gs::passthrough_layers{.patterns = {}, .up_to = 7}};
  CHECK(small.passthrough_elements == 12);
  CHECK(gs::detail::layer_split{layers, gs::passthrough_layers{.patterns = {}, .up_to = 8}}.passthrough_elements == 20);
}

// ---- Densities -------------------------------------------------------------------------------------------

TEST_CASE("a density is the same in every step") {
  gs::density_schedule const constant = 0.125;
  CHECK(constant(0) == 0.125);
  CHECK(constant(1'000'000) == 0.125);
  CHECK(constant.most() == 0.125);
  for (double const good : {0.0, 1.0, 1e-9}) CHECK_NOTHROW(gs::density_schedule{good}.check());
}

TEST_CASE("a warm-up falls geometrically, in stairs or smoothly, and stays") {
  gs::density_schedule const stairs = gs::warm_up{.initial = 0.25, .final = 0.001, .steps = 400, .stages = 4};
  std::array const expected{0.25, 0.0629, 0.0158, 0.00398};
  for (std::uint64_t step = 0; step < 400; ++step)
    CHECK(stairs(step) == doctest::Approx(expected[step / 100]).epsilon(0.005));
  CHECK(stairs(99) == stairs(0));
  CHECK(stairs(400) == 0.001);
  CHECK(stairs(~std::uint64_t{0}) == 0.001);
  CHECK(stairs.most() == 0.25);

  gs::density_schedule const smooth = gs::warm_up{.initial = 0.25, .final = 0.01, .steps = 10};
  CHECK(smooth(0) == 0.25);
  CHECK(smooth(5) == doctest::Approx(0.05));
  for (std::uint64_t step = 0; step < 12; ++step) CHECK(smooth(step + 1) <= smooth(step));
  CHECK(smooth(10) == 0.01);

  gs::density_schedule const uneven =
      gs::warm_up{.initial = 0.5, .final = 0.01, .steps = 10, .stages = 3};  // stairs of 4, 3, 3
  std::set<double> levels;
  for (std::uint64_t step = 0; step < 10; ++step) {
    levels.insert(uneven(step));
    CHECK(uneven(step + 1) <= uneven(step));
  }
  CHECK(levels.size() == 3);
  CHECK(gs::density_schedule{gs::warm_up{.initial = 0.01, .final = 0.5, .steps = 4}}.most() == 0.5);
}

TEST_CASE("a density outside [0, 1] is refused by name and value") {
  double const nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_WITH_AS(gs::density_schedule{1.5}.check(), "gradsieve: density is 1.5, expected 0 to 1",
                       gs::invalid_argument);
  CHECK_THROWS_WITH_AS(gs::density_schedule{-0.1}.check(), doctest::Contains("-0.1"), gs::invalid_argument);
  CHECK_THROWS_AS(gs::density_schedule{nan}.check(), gs::invalid_argument);
  CHECK_THROWS_WITH_AS((gs::density_schedule{gs::warm_up{.initial = 2, .final = 0.5, .steps = 1}}.check()),
                       "gradsieve: warm-up runs from density 2 to 0.5, expected both above 0 and up to 1",
                       gs::invalid_argument);
  CHECK_THROWS_AS((gs::density_schedule{gs::warm_up{.initial = 0, .final = 0.5, .steps = 1}}.check()),
                  gs::invalid_argument);
  CHECK_THROWS_AS((gs::density_schedule{gs::warm_up{.initial = nan, .final = 0.5, .steps = 1}}.check()),
                  gs::invalid_argument);
  CHECK_THROWS_AS((gs::density_schedule{gs::warm_up{.initial = 0.5, .final = 0, .steps = 1}}.check()),
                  gs::invalid_argument);
  CHECK_THROWS_AS((gs::compressor{gs::host{}, gs::layout::flat(4), gs::recipe{.density = 7.0}}), gs::invalid_argument);
}

TEST_CASE("the budget is ceil(density * elements)") {
  CHECK(gs::budget_of(0, 100) == 0);
  CHECK(gs::budget_of(0.5, 0) == 0);
  CHECK(gs::budget_of(1, 100) == 100);
  CHECK(gs::budget_of(0.01, 100) == 1);
  CHECK(gs::budget_of(0.011, 100) == 2);
  CHECK(gs::budget_of(1e-12, 100) == 1);
  CHECK(gs::budget_of(0.001, 25'000'000) == 25'000);
  CHECK(gs::budget_of(1, 4'294'967'295u) == 4'294'967'295u);
  CHECK(gs::budget_of(0.5, 4'294'967'295u) == 2'147'483'648u);
  CHECK(gs::budget_of(0.1, 16'777'217) == 1'677'722);
}

// ---- Text ------------------------------------------------------------------------------------------------

TEST_CASE("numbers print alike, whatever the stream") {
  std::ostringstream out;
  out << std::setprecision(2) << std::fixed << std::hex << std::showpos << gs::shortest{0.1f} << ' '
      << gs::shortest{0.001} << ' ' << gs::shortest{1e-30} << ' ' << gs::shortest{255} << ' ' << gs::shortest{true};
  CHECK(out.str() == "0.1 0.001 1e-30 255 true");
}

TEST_CASE("policies print their name and fields") {
  std::ostringstream out;
  gs::describe(out, "bare");
  gs::describe(out << ' ', "name", std::pair{"a", 1}, std::pair{"b", 0.5f});
  CHECK(out.str() == "bare name{a 1, b 0.5}");

  struct silent {};
  std::ostringstream other;
  gs::print(other, silent{});
  CHECK(other.str() == "custom");

  CHECK(text(gs::laplacian{}) == "laplacian{tolerance 0.25, count band, warm true}");
  CHECK(text(gs::hierarchical{.seed = 7}) == "hierarchical{sample_ratio 0.01, least 0.8, most 1.3, seed 7}");
  CHECK(text(gs::deft{}) == "deft{cost n log2 k, sharing by_layer, rotate_every 100}");
  CHECK(text(gs::deft{.cost = {1, 2, 3}, .sharing = gs::deft_sharing::by_fragment, .rotate_every = 1}) ==
        "deft{cost 1 + 2 n + 3 k, sharing by_fragment, rotate_every 1}");
  CHECK(text(gs::density_schedule{gs::warm_up{.initial = 0.25, .final = 0.01, .steps = 9}}) ==
        "warm_up{initial 0.25, final 0.01, steps 9, stages 0}");
  CHECK(text(gs::passthrough_layers{}) == "passthrough{up_to 0, <biases and norms>}");
}

TEST_CASE("a recipe prints, compares and hashes every policy") {
  gs::recipe const plain{};
  CHECK(text(plain) ==
        "density 0.01, radix, whole, error_feedback{decay 1}, coo, gather, passthrough{up_to 0, <biases and norms>}");
  CHECK(text(gs::recipe{.on_non_finite = gs::non_finite::fail}).ends_with(", fails on non-finite"));
  CHECK(plain == gs::recipe{});
  CHECK(plain.hash() == gs::recipe{}.hash());

  decltype(gs::recipe{}) const others[] = {
      {.density = 0.02},
      {.density = gs::warm_up{.steps = 5}},
      {.density = gs::warm_up{.steps = 5, .stages = 1}},
      {.residual = {.decay = 0.5f}},
      {.passthrough = {.patterns = {}}},
      {.passthrough = {.up_to = 3}},
      {.on_non_finite = gs::non_finite::fail},
  };
  std::set<std::uint64_t> seen{plain.hash()};
  for (auto const& each : others) {
    CHECK_FALSE(each == plain);
    seen.insert(each.hash());
  }
  seen.insert(gs::recipe{.selector = gs::laplacian{}}.hash());
  seen.insert(gs::recipe{.selector = gs::laplacian{.tolerance = 0.5f}}.hash());
  seen.insert(gs::recipe{.selector = gs::laplacian{.count = gs::count_mode::exact}}.hash());
  seen.insert(gs::recipe{.selector = gs::laplacian{.warm = false}}.hash());
  seen.insert(gs::recipe{.selector = gs::hierarchical{}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::layerwise{}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::deft{}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::deft{.sharing = gs::deft_sharing::by_fragment}}.hash());
  seen.insert(gs::recipe{.partitioner = gs::deft{.rotate_every = 1}}.hash());
  seen.insert(gs::recipe{.residual = gs::momentum_correction{}}.hash());
  seen.insert(gs::recipe{.residual = gs::none{}}.hash());
  CHECK(seen.size() == 19);
  CHECK(gs::recipe{.residual = gs::momentum_correction{.clip = -0.0f}}.hash() ==
        gs::recipe{.residual = gs::momentum_correction{.clip = 0.0f}}.hash());  // they compare as equal
}

namespace {

struct in_padding {
  [[maybe_unused]] static constexpr char const* name = "in_padding";
  static constexpr auto fields() { return std::tuple{gs::field<&in_padding::c>{"c"}, gs::field<&in_padding::a>{"a"}}; }
  float c = 0;
  bool a = false;
  bool b = false;  // has room where nothing else is
};
struct named_in_full {
  static constexpr char const* name = "named_in_full";
  static constexpr auto fields() {
    return std::tuple{gs::field<&named_in_full::c>{"c"}, gs::field<&named_in_full::a>{"a"}};
  }
  float c = 0;
  bool a = false;
};
struct adds_a_member : named_in_full {
  bool b = false;
};
struct adds_nothing : named_in_full {};
struct empty_heir : gs::radix {};

}  // namespace

TEST_CASE("a policy must name all members, those that lie in padding too; a heir is another policy") {
  static_assert(gs::detail::names_all_members<named_in_full>());
  static_assert(gs::detail::names_all_members<adds_nothing>());
  static_assert(!gs::detail::names_all_members<in_padding>());
  static_assert(!gs::detail::names_all_members<adds_a_member>());
  auto const number = [](auto const& policy) {
    gs::fingerprint all;
    gs::add_to(all, policy);
    return all.value();
  };
  CHECK(number(named_in_full{}) != number(adds_nothing{}));
  CHECK(number(gs::radix{}) != number(empty_heir{}));
  CHECK(number(gs::radix{}) == number(gs::radix{}));
}

TEST_CASE("a report says what a step did") {
  gs::step_report report;
  CHECK(report.build_up() == 0);
  report.budget = 10;
  report.union_size = 25;
  CHECK(report.build_up() == 2.5);
  report.seconds = {1, 2, 3, 4, 5};
  CHECK(report.seconds.total() == 15);
  CHECK(text(report).find("budget 10, entries sent 0 (at most 0), in the update 25 (build-up 2.5), ") !=
        std::string::npos);
}

TEST_CASE("a sample takes one place in each of its strips") {
  for (std::uint64_t const n : {1ull, 7ull, 1000ull, (1ull << 20) + 3, (1ull << 32) - 1})
    for (std::uint64_t const count : {1ull, 3ull, 1000ull, 1ull << 20}) {
      if (count > n) continue;
      CAPTURE(n);
      CAPTURE(count);
      gs::detail::sample_places const places{n, count, gs::mix(n + count)};
      double const strip = static_cast<double>(n) / static_cast<double>(count);
      std::uint64_t sum = 0;
      for (std::uint64_t j = 0; j < count; ++j) {
        REQUIRE(places[j] < n);
        REQUIRE(static_cast<double>(places[j]) >= std::floor(static_cast<double>(j) * strip));
        REQUIRE(static_cast<double>(places[j]) < static_cast<double>(j + 1) * strip + 1);
        sum += places[j];
      }
      // Uniform within a strip: the mean place is in the middle, here to six standard deviations.
      double const mean = static_cast<double>(sum) / static_cast<double>(count);
      double const spread = strip / std::sqrt(12.0 * static_cast<double>(count));
      CHECK(std::abs(mean - (static_cast<double>(n) - 1) / 2) <= 6 * spread + 0.5);
      if (count == n) CHECK(places[n - 1] == n - 1);
    }
}

TEST_CASE("arithmetic for both spaces is that of the standard library") {
  for (int const a : {-3, 0, 5})
    for (int const b : {-3, 0, 5}) {
      CHECK(gs::smaller(a, b) == std::min(a, b));
      CHECK(gs::larger(a, b) == std::max(a, b));
      for (int const x : {-9, -3, 2, 5, 9})
        if (a <= b) CHECK(gs::clamped(x, a, b) == std::clamp(x, a, b));
    }
  for (std::uint64_t const x : {0ull, 1ull, 2ull, 3ull, 255ull, 256ull, 0x7FFF'FFFFull, 0x8000'0000ull, 0xFFFF'FFFFull})
    CHECK(gs::bit_width(static_cast<std::uint32_t>(x)) == static_cast<unsigned>(std::bit_width(x)));
}

namespace {
template <class From, class To>
constexpr bool converts = std::is_convertible_v<From, To>;

static_assert(std::is_trivially_copyable_v<gs::view<float>> && std::is_trivially_copyable_v<gs::accumulator_ref>);
static_assert(converts<std::vector<float>&, gs::view<float>> && converts<std::vector<float>&, gs::view<float const>>);
static_assert(converts<std::span<float>, gs::view<float const>> && converts<gs::view<float>, gs::view<float const>>);
static_assert(converts<gs::view<float>, std::span<float>> && converts<gs::view<float>, std::span<float const>>);
static_assert(!converts<std::vector<float> const&, gs::view<float>>);
static_assert(!converts<gs::view<float const>, gs::view<float>> && !converts<gs::view<float const>, std::span<float>>);
static_assert(!converts<std::vector<float>, gs::view<float>> && !converts<std::vector<int>&, gs::view<float>>);
}  // namespace

TEST_CASE("a view is a span for both spaces") {
  std::vector<int> values{1, 2, 3, 4, 5};
  gs::view<int> const all = values;
  all[1] = 7;
  CHECK(values[1] == 7);
  CHECK(all.data() == values.data());
  CHECK(all.size() == 5);
  CHECK(std::equal(all.begin(), all.end(), values.begin(), values.end()));
  gs::view<int const> const middle = all.subspan(1, 3).first(2);
  CHECK(middle.size() == 2);
  CHECK(middle[0] == 7);
  std::span<int const> const back = middle;
  CHECK(back.data() == values.data() + 1);
  CHECK(back.size() == 2);
  CHECK(gs::view<int>{}.empty());
  CHECK(!all.empty());
}

TEST_CASE("a sample answers by rank and by count") {
  std::vector<gs::key_type> keys{};
  for (float const x : {0.5f, 0.0f, 3.0f, 1.0f, 3.0f}) keys.push_back(gs::magnitude_key(x));
  gs::detail::key_sample sample{keys};
  CHECK(sample.size() == 5);
  CHECK(sample.sum_abs() == 7.5);
  CHECK(sample.nonzero() == 4);
  CHECK(sample.count_at_least(gs::magnitude_key(1.0f)) == 3);
  CHECK(sample.count_at_least(gs::infinite_key) == 0);
  auto rank = std::uint64_t{0};
  for (float const x : {3.0f, 3.0f, 1.0f, 0.5f, 0.0f}) CHECK(sample.kth_largest(++rank) == gs::magnitude_key(x));
  CHECK(sample.keys().data() == keys.data());
}
