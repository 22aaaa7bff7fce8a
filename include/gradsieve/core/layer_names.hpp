// Rules for layer names: wrappers' parts, and names of biases and norms.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include <gradsieve/core/config.hpp>

namespace gradsieve::inline GRADSIEVE_ABI {

/// A name, or a pattern, without the parts that PyTorch's torch.compile, FSDP and activation checkpoints insert.
[[nodiscard]] inline std::string without_wrappers(std::string_view name) {
  constexpr std::array<std::string_view, 3> wrappers{"_orig_mod.", "_fsdp_wrapped_module.",
                                                     "_checkpoint_wrapped_module."};
  std::string plain{name};
  for (auto const wrapper : wrappers)
    for (auto at = plain.find(wrapper); at != std::string::npos; at = plain.find(wrapper, at)) {
      if (at == 0 || plain[at - 1] == '.')
        plain.erase(at, wrapper.size());
      else
        ++at;
    }
  return plain;
}

namespace detail {

/// True if a text has one of these words, in lower case with a blank before and behind each: "LayerNorm_2",
/// "layer_norm2" and "layerNorm" have the words "layer" and "norm", "BatchNorm2d" has "batch", "norm" and "d".
[[nodiscard]] inline bool has_word(std::string_view text, std::string_view words) {
  auto const is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  auto const is_lower = [](char c) { return c >= 'a' && c <= 'z'; };
  std::string word;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    char const c = i < text.size() ? text[i] : '\0';
    bool const begins =
        is_upper(c) && i > 0 &&
        (is_lower(text[i - 1]) || (is_upper(text[i - 1]) && i + 1 < text.size() && is_lower(text[i + 1])));
    if ((begins || !(is_upper(c) || is_lower(c))) && !word.empty()) {
      if (words.find(' ' + word + ' ') != words.npos) return true;
      word.clear();
    }
    if (is_upper(c)) word += static_cast<char>(c - 'A' + 'a');
    if (is_lower(c)) word += c;
  }
  return false;
}

}  // namespace detail

/// True if a name is that of a bias or of a parameter of a norm, by whole words of its last part ("q_bias") and, for
/// norms, of the part before it ("layer1.0.bn1.weight", "encoder/LayerNorm/gamma"). Ignores case and digits. Tables of
/// relative or absolute positions are never biases. Names of numbered modules ("features.0.1.weight") do not tell.
[[nodiscard]] inline bool names_bias_or_norm(std::string_view name) {
  constexpr std::string_view norms =
      " norm bn ln gn layernorm batchnorm groupnorm instancenorm rmsnorm syncbatchnorm "
      "normalization normalisation layrnorm ";  // the last one is CLIP's
  constexpr std::string_view biases = " bias ";
  constexpr std::string_view tables = " table relative rel position pos ";
  constexpr std::string_view separators = "./";
  auto const end = name.find_last_of(separators);
  auto const last = end == name.npos ? name : name.substr(end + 1);
  auto const front = end == name.npos ? std::string_view{} : name.substr(0, end);
  auto const before = front.substr(front.find_last_of(separators) + 1);
  return detail::has_word(last, norms) || detail::has_word(before, norms) ||
         (detail::has_word(last, biases) && !detail::has_word(last, tables));
}

}  // namespace gradsieve
