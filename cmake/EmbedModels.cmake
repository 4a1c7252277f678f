# cmake -DMODELS=<a.json;b.json> -DOUTPUT=<file.cc> -P EmbedModels.cmake
#
# Writes the model files into one source file, as raw string literals, so that the library needs no
# path at run time.
file(WRITE ${OUTPUT}.tmp "// Made by cmake/EmbedModels.cmake from models/. Do not edit.
#include \"model/model_file.h\"

namespace changeover::model {

std::vector<std::pair<std::string_view, std::string_view>> embedded_model_files() {
  return {
")
foreach(path IN LISTS MODELS)
  get_filename_component(name ${path} NAME)
  file(READ ${path} text)
  file(APPEND ${OUTPUT}.tmp "      {\"${name}\", R\"model(${text})model\"},\n")
endforeach()
file(APPEND ${OUTPUT}.tmp "  };
}

}  // namespace changeover::model
")
file(RENAME ${OUTPUT}.tmp ${OUTPUT})
