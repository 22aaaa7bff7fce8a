// Ordinary functions of headers, which units that use gradsieve::compiled only declare.
#include <gradsieve/core/density_bodies.hpp>
#include <gradsieve/core/layout_bodies.hpp>
#include <gradsieve/core/passthrough_layers_bodies.hpp>
#include <gradsieve/core/report_bodies.hpp>
#include <gradsieve/core/text_bodies.hpp>
