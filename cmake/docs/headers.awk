# Input filter of doxygen. Every model of a concept has the concept's members, and most say no more about them than the
# concept does. A member in this table that has no comment of its own gets the sentence that stands here, on its own line,
# so that line numbers stay.
function member(pattern, text) {
  patterns[++count] = pattern
  texts[count] = text
}
function sentence(line, i) {
  if (lines[1] == "template <>") return "/** Of this type; see the primary template. */ "
  if (line ~ /^concept /) return "/** @undocumented_concept */ "  # no command: an error, where doxygen itself says nothing
  for (i = 1; i <= count; ++i)
    if (line ~ patterns[i]) return "/** " linked(texts[i]) " */ "
  return ""
}
function flush(prefix, i) {
  for (i = 1; i <= held; ++i) print (i == 1 ? prefix : "") lines[i]
  held = 0
}
# The group of a header's names: a folder is a family.
function group_of(file) {
  sub(/.*\/include\/gradsieve\//, "", file)
  if (file ~ /^(concepts\/|)selector[\/.]/) return "selectors"
  if (file ~ /^(concepts\/|)partitioner[\/.]/) return "partitioners"
  if (file ~ /^(concepts\/|)residual[\/.]/) return "residuals"
  if (file ~ /^codec\/index\//) return "index_codecs"
  if (file ~ /^codec\/value\//) return "value_codecs"
  if (file ~ /^(concepts\/|)codec[\/.]/) return "codecs"
  if (file ~ /^(concepts\/|)exchange[\/.]/) return "exchanges"
  if (file ~ /^(comm\/|concepts\/communicator)/) return "communicators"
  if (file ~ /^(host|cuda)\/|^concepts\/space/) return "spaces"
  if (file ~ /^plan\/planners\//) return "planners"
  if (file ~ /^overlap\//) return "overlapping"
  if (file ~ /^plan\/(networks|collectives|cost|fit)/) return "costs"
  if (file ~ /^plan\//) return "scheduling"
  if (file ~ /^(core\/|concepts\/policy)/) return "vocabulary"
  return "compression"
}
# "see name" as a link: doxygen finds no concept by itself.
function linked(line, done, word, name) {
  while (match(line, /(see|As) [a-z_]+[.,;]/)) {
    word = substr(line, RSTART, RLENGTH - 1)
    done = done substr(line, 1, RSTART - 1)
    line = substr(line, RSTART + RLENGTH - 1)
    name = word
    sub(/.* /, "", name)
    if (name ~ /_/ || name in short_names) sub(/[a-z_]+$/, "@ref gradsieve::" name " \"" name "\"", word)
    done = done word
  }
  return done line
}
BEGIN {
  split("codec described fingerprinted partitioner planner quantises space", names, " ")
  for (i in names) short_names[names[i]] = 1
  group = group_of(ARGV[1])
  # Every policy.
  member("friend bool operator==\\(.*= default;", "Whether all members are equal.")
  member("friend std::ostream& operator<<\\(", "Writes it as text, for people.")
  member("static constexpr char const\\* name =", "Its name in text, errors and fingerprints; see described.")
  member("static constexpr auto fields\\(\\)", "Its data members, for text, range checks and fingerprints; see described.")
  member("void check\\(\\) const", "Throws invalid_argument where its values make no sense; see self_checking.")
  member("void add_to\\(fingerprint& to\\)", "Adds all that tells two values apart; see fingerprinted.")
  # Selectors.
  member("select\\(Workspace& work, accumulator_ref (const )?acc, index_type k, selection_span", "Writes the chosen entries in index order and returns their number; see direct_selector.")
  member("key_type predict\\(", "The candidate threshold of the accumulate pass; see predicting_selector.")
  member("bool predicts_warm\\(\\) const", "Whether a warm threshold that fits is what predict() returns; see warm_selector.")
  member("candidate_choice choose\\(", "What is wanted of a segment's candidates; see candidate_selector.")
  member("threshold settle\\(", "The threshold to keep, once the wanted candidate is found; see candidate_selector.")
  member("index_type capacity\\(index_type", "The most entries that are sent for a budget of k; see capacity_selector.")
  member("std::uint32_t bin_length\\(layer", "The length of a layer's bins; see bin_selector.")
  member("threshold threshold_of\\(", "A bin's threshold; see bin_selector.")
  member("bool bins_within_layers =", "No bin crosses from one layer into the next; see layer_bin_selector.")
  member("bool same_on_all_ranks =", "All ranks choose the same elements; see shared_selector.")
  # Partitioners.
  member("partitioner_traits traits", "What it needs and promises; see partitioner_traits.")
  member("using default_exchange =", "The exchange of a recipe that names none.")
  member("void split\\(", "Makes the segments, once for a world size; see partitioner.")
  member("void assign\\(std::span<segment> ", "Gives every segment its k and its owner, in each step; see partitioner.")
  # Residual stores.
  member("std::size_t states =", "Floats kept for each element; see residual_store.")
  member("operator\\[\\]\\(std::size_t s\\)", "State s.")
  member("accumulate_element\\(", "Adds a gradient to an element's state; see residual_store.")
  member("remove_sent\\(", "What stays of a state once a value was sent; see residual_store.")
  # Codecs.
  member("std::uint16_t id =", "Its number in a message's header; ids of the library are below 32768.")
  member("std::uint64_t max_bytes\\(", "Bytes that are enough for so many entries, and for fewer; see codec, see index_codec, see value_codec.")
  member("std::uint64_t bytes\\(message_info", "Bytes of the values at these indices; see value_codec.")
  member(" encode\\(message_info", "Writes the bytes; see codec, see index_codec, see value_codec.")
  member(" decode\\(message_info", "Reads the bytes, and throws corrupt_message for what encode() cannot have written; see codec, see index_codec, see value_codec.")
  member("void quantise\\(message_info", "Replaces values, in place, by those that a receiver decodes; see quantises.")
  member("std::uint64_t most_entries\\(", "Bounds the entries of a message by its front and size; see bounded_codec.")
  member("std::uint64_t most_count\\(", "How many values go into so many bytes; see counting_value_codec.")
  member("std::uint64_t value_bytes\\(\\)", "Bytes of each value; see elementwise_values.")
  member("float largest\\(\\) const", "The largest value that it can hold; see limited_codec.")
  member("char const\\* name_of\\(std::span", "The name of the codec that has written these bytes; see choosing_index_codec.")
  member("byte_breakdown breakdown\\(", "Where a message's bytes went; see accounting_codec.")
  # Exchanges.
  member("exchange_traits traits", "What it does with values, and needs; see exchange_traits.")
  member("^  class buffers ", "What one compressor needs for this exchange; see host_exchange.")
  member(" void reserve\\((Workspace|host_workspace)& work, Codec", "Makes room for a world. Allocates; see host_exchange.")
  member("std::uint64_t most_sent\\(\\)", "Entries that a rank gives up in a step beyond those that it has selected, at most; see host_exchange.")
  member("exchange_result run\\(", "One round. Collective; see runs_with.")
  # Planners.
  member("grouping operator\\(\\)\\(arrivals", "The groups of these gradients; see planner.")
  # Communicators.
  member("int rank\\(\\) const", "This rank, from 0.")
  member("int size\\(\\) const", "The number of ranks.")
  member("void all_reduce\\(", "Every rank gets the reduced values. Collective; see has_all_reduce.")
  member("void reduce_scatter\\(", "Every rank gets its share of the reduced values. Collective; see has_reduce_scatter.")
  member("void all_gather\\(", "Every rank gets all ranks' bytes, in rank order. Collective; see has_all_gather.")
  member("void broadcast\\(", "Every rank gets the root's bytes. Collective; see has_broadcast.")
  member("void send_receive\\(", "Sends to one rank while it receives from another; see has_send_receive.")
  member("void all_to_all\\(", "Every rank sends each rank a message of its own. Collective; see has_all_to_all.")
  member("void require_threads\\(\\) const", "Throws unless calls may come from any one thread at a time; see thread_checking_communicator.")
  member("bool stream_ordered =", "Whether collectives are enqueued in the device's stream; see stream_ordered_communicator, see space.")
  member("bool stages =", "Device memory goes through the host's; see staging_communicator.")
}
# The comment that a header begins with says what the header is for.
NR == 1 && /^\/\/ / { opening = 1; sub(/^\/\//, "/**") }
opening && /^\/\// { sub(/^\/\//, "  ") }
opening && /^#/ { $0 = "@file */ " $0; opening = 0 }
/^namespace gradsieve.*{$/ { sub(/::inline GRADSIEVE_ABI/, ""); $0 = $0 " /** @addtogroup " group " */ /** @{ */" }
/^}  \/\/ namespace gradsieve/ { $0 = "/** @} */ " $0 }
/^ *\/\/\// {
  # The lines of the contract begin paragraphs; doxygen's own table of exceptions takes the first words for a name.
  first = documented ? 0 : 1
  if (!first || $0 !~ /^ *\/\/\/ [A-Z][A-Za-z ]*: /) gsub(/(When not|Cost|Memory|Ranks|Threads|Source|Payload): /, "<p><b>&</b>")
  gsub(/@throws /, "<p><b>Throws:</b> ")
  documented = 1
  print linked($0)
  next
}
/^ *(template <.*>|requires.*|GRADSIEVE_EITHER_SPACE) *$/ && held < 6 { lines[++held] = $0; next }
{
  lines[++held] = $0
  flush(documented || /\/\/\/</ ? "" : sentence($0))
  documented = 0
}
END { flush("") }
