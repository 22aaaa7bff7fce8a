# Filter of doxygen for pages. Links that lead to another page of the reference, or out of the project, stay; of others
# their words stay, as the files are not beside the HTML. A picture is found by its name: IMAGE_PATH.
/^ *```/ { fenced = !fenced }
{
  line = $0
  if (fenced) gsub(/\]\(/, "]\001(", line)  # code is not touched
  else gsub(/`::/, "`", line)               # doxygen looks for such names even in code
  text = text line "\n"
}
END {
  while (match(text, /!?\[[^][]*\]\([^()]*\)/)) {
    before = substr(text, 1, RSTART - 1)
    link = substr(text, RSTART, RLENGTH)
    text = substr(text, RSTART + RLENGTH)
    words = target = link
    sub(/^!?\[/, "", words)
    sub(/\]\([^()]*\)$/, "", words)
    sub(/^.*\]\(/, "", target)
    sub(/\)$/, "", target)
    if (link ~ /^!/) {
      sub(/.*\//, "", target)
      link = "![" words "](" target ")"
    } else if (target !~ /^[a-z]+:/) {
      sub(/#.*/, "", target)
      link = target ~ /(README|DESIGN|RUNNING|TRAINING)\.md$/ ? "[" words "](" target ")" : words
    }
    gsub(/\001/, "", before)
    printf "%s%s", before, link
  }
  gsub(/\001/, "", text)
  printf "%s", text
}
