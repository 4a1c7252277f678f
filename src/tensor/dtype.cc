#include <array>

#include <changeover/dtype.h>

namespace changeover {

namespace {

struct Row {
  DType dtype;
  int bits;
  std::string_view wire;         // Empty = none.
  std::string_view safetensors;  // Empty = none.
};

constexpr std::array<Row, kDTypeCount> kRows = {{
    {DType::kF64, 64, "float64", "F64"},
    {DType::kF32, 32, "float32", "F32"},
    {DType::kF16, 16, "float16", "F16"},
    {DType::kBF16, 16, "bfloat16", "BF16"},
    {DType::kF8E4M3FN, 8, "float8_e4m3fn", "F8_E4M3"},
    {DType::kF8E5M2, 8, "float8_e5m2", "F8_E5M2"},
    {DType::kF8E4M3FNUZ, 8, "float8_e4m3fnuz", ""},
    {DType::kF8E5M2FNUZ, 8, "float8_e5m2fnuz", ""},
    {DType::kF8E8M0FNU, 8, "float8_e8m0fnu", "F8_E8M0"},
    {DType::kF6E2M3, 6, "", "F6_E2M3"},
    {DType::kF6E3M2, 6, "", "F6_E3M2"},
    {DType::kF4, 4, "", "F4"},
    {DType::kI8, 8, "int8", "I8"},
    {DType::kI16, 16, "int16", "I16"},
    {DType::kI32, 32, "int32", "I32"},
    {DType::kI64, 64, "int64", "I64"},
    {DType::kU8, 8, "uint8", "U8"},
    {DType::kU16, 16, "uint16", "U16"},
    {DType::kU32, 32, "uint32", "U32"},
    {DType::kU64, 64, "uint64", "U64"},
    {DType::kBool, 8, "bool", "BOOL"},
    {DType::kC64, 64, "", "C64"},
}};

constexpr bool rows_stand_in_order() {
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].dtype != static_cast<DType>(i)) {
      return false;
    }
  }
  return true;
}
static_assert(rows_stand_in_order());

const Row& row(DType dtype) {
  return kRows[static_cast<size_t>(dtype)];
}

std::optional<std::string_view> some(std::string_view name) {
  return name.empty() ? std::nullopt : std::optional(name);
}

std::optional<DType> find(std::string_view name, std::string_view Row::*column) {
  for (const Row& candidate : kRows) {
    if (!name.empty() && candidate.*column == name) {
      return candidate.dtype;
    }
  }
  return std::nullopt;
}

}  // namespace

int dtype_bits(DType dtype) {
  return row(dtype).bits;
}
int dtype_bytes(DType dtype) {
  return row(dtype).bits / 8;
}

std::optional<std::string_view> wire_dtype_name(DType dtype) {
  return some(row(dtype).wire);
}
std::optional<DType> dtype_from_wire_name(std::string_view name) {
  return find(name, &Row::wire);
}

std::optional<std::string_view> safetensors_dtype_name(DType dtype) {
  return some(row(dtype).safetensors);
}
std::optional<DType> dtype_from_safetensors_name(std::string_view name) {
  return find(name, &Row::safetensors);
}

std::string_view dtype_name(DType dtype) {
  return row(dtype).wire.empty() ? row(dtype).safetensors : row(dtype).wire;
}

}  // namespace changeover
