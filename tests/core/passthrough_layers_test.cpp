// Which layers pass through by default, for published models and committed traces too.
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <gradsieve/gradsieve.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace gs = gradsieve;

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
