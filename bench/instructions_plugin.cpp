// A plugin of QEMU that counts executed instructions: `qemu-aarch64 -plugin THIS -d plugin -D FILE PROGRAM` writes the
// number to FILE. The declarations are those of QEMU 4.2's to 8.2's interface, whose header Debian does not install.

#include <cstddef>
#include <cstdint>
#include <cstdio>

extern "C" {
struct qemu_info_t;
struct qemu_plugin_tb;  // a block of instructions that QEMU translates at once
using plugin_id = std::uint64_t;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_inline(qemu_plugin_tb*, int operation, void* to, std::uint64_t amount);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void*), void*);
std::size_t qemu_plugin_tb_n_insns(qemu_plugin_tb const*);
void qemu_plugin_outs(char const*);

[[gnu::visibility("default")]] int qemu_plugin_version = 1;
[[gnu::visibility("default")]] int qemu_plugin_install(plugin_id id, qemu_info_t const*, int, char**);
}

namespace {

std::uint64_t executed = 0;

void count(plugin_id, qemu_plugin_tb* block) {
  int const add = 0;
  qemu_plugin_register_vcpu_tb_exec_inline(block, add, &executed, qemu_plugin_tb_n_insns(block));
}

void print(plugin_id, void*) {
  char text[32];
  std::snprintf(text, sizeof text, "%llu\n", static_cast<unsigned long long>(executed));
  qemu_plugin_outs(text);
}

}  // namespace

int qemu_plugin_install(plugin_id id, qemu_info_t const*, int, char**) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, count);
  qemu_plugin_register_atexit_cb(id, print, nullptr);
  return 0;
}
