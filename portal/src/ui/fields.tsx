import { useEffect, useEffectEvent, useId, useRef, useState, type ReactNode } from "react";
import {
  Button as AriaButton,
  ComboBox as AriaComboBox,
  FieldError,
  Input,
  Label,
  ListBox,
  ListBoxItem,
  Popover,
  Radio,
  RadioGroup,
  Select as AriaSelect,
  SelectValue,
  Text,
  TextField as AriaTextField,
  type ComboBoxProps,
  type SelectProps,
  type TextFieldProps,
} from "react-aria-components";

import { ChevronDown } from "./icons";

type Described = { label: string; hint?: ReactNode; error?: string | undefined };

/** A text field with its label, a hint and the error that belongs to it. */
export function TextField({
  label,
  hint,
  error,
  unit,
  id,
  inputProps,
  ...props
}: TextFieldProps & Described & { unit?: string; inputProps?: React.ComponentProps<typeof Input> }) {
  return (
    <AriaTextField
      {...props}
      {...(id ? { id } : {})}
      isInvalid={error !== undefined}
      validationBehavior="aria"
      className="field"
    >
      <Label className="label">{label}</Label>
      <div className="input-group">
        <Input {...inputProps} className="input" />
        {unit ? <span className="unit">{unit}</span> : null}
      </div>
      {hint ? (
        <Text slot="description" className="hint">
          {hint}
        </Text>
      ) : null}
      <FieldError className="error">{error}</FieldError>
    </AriaTextField>
  );
}

/**
 * A text field for a value that is kept in the address. The field keeps its own text, because the address changes later
 * than the field: a late text would end the composition of an input method, and move the caret. `onChange` is called
 * `wait` ms after the last key.
 */
export function AddressField({
  value,
  onChange,
  wait,
  ...props
}: {
  value: string;
  onChange: (text: string) => void;
  wait: number;
  label: string;
}) {
  const [text, setText] = useState(value);
  /** Texts that were handed to `onChange` and have not come back as `value`. */
  const sent = useRef<string[]>([]);
  const send = useEffectEvent(() => {
    if (text === (sent.current.at(-1) ?? value)) return;
    sent.current.push(text);
    onChange(text);
  });
  useEffect(() => {
    const timer = setTimeout(send, wait);
    return () => clearTimeout(timer);
  }, [text, wait]);
  useEffect(() => {
    const own = sent.current.lastIndexOf(value);
    sent.current.splice(0, own + 1);
    if (own < 0) setText(value);
  }, [value]);
  return <TextField {...props} value={text} onChange={setText} type="search" />;
}

export type Option = { id: string; name: string; hint?: string | undefined; disabled?: boolean };

function Item({ option }: { option: Option }) {
  return (
    <ListBoxItem id={option.id} textValue={option.name} isDisabled={option.disabled ?? false} className="option">
      <Text slot="label">{option.name}</Text>
      {option.hint ? (
        <Text slot="description" className="hint">
          {option.hint}
        </Text>
      ) : null}
    </ListBoxItem>
  );
}

/** A choice of one of few. */
export function Select({
  label,
  hint,
  error,
  options,
  ...props
}: Omit<SelectProps<Option>, "children"> & Described & { options: Option[] }) {
  return (
    <AriaSelect {...props} isInvalid={error !== undefined} validationBehavior="aria" className="field">
      <Label className="label">{label}</Label>
      <AriaButton className="input select-button" {...(error === undefined ? {} : { "data-invalid": true })}>
        <SelectValue />
        <ChevronDown />
      </AriaButton>
      {hint ? (
        <Text slot="description" className="hint">
          {hint}
        </Text>
      ) : null}
      <FieldError className="error">{error}</FieldError>
      <Popover className="popover">
        <ListBox items={options} className="options">
          {(option) => <Item option={option} />}
        </ListBox>
      </Popover>
    </AriaSelect>
  );
}

/** A field in which one types to search among many. Enter during the composition of an input method chooses nothing. */
export function ComboBox({
  label,
  hint,
  error,
  options,
  empty,
  placeholder,
  ...props
}: Omit<ComboBoxProps<Option>, "children"> & Described & { options: Option[]; empty: string; placeholder?: string }) {
  return (
    <AriaComboBox
      {...props}
      items={options}
      isInvalid={error !== undefined}
      validationBehavior="aria"
      menuTrigger="focus"
      allowsEmptyCollection
      className="field"
    >
      <Label className="label">{label}</Label>
      <div className="input-group">
        <Input className="input" placeholder={placeholder} onKeyDownCapture={holdDuringComposition} />
        <AriaButton className="open">
          <ChevronDown />
        </AriaButton>
      </div>
      {hint ? (
        <Text slot="description" className="hint">
          {hint}
        </Text>
      ) : null}
      <FieldError className="error">{error}</FieldError>
      <Popover className="popover">
        <ListBox<Option> className="options" renderEmptyState={() => <div className="option hint">{empty}</div>}>
          {(option) => <Item option={option} />}
        </ListBox>
      </Popover>
    </AriaComboBox>
  );
}

/** Stops Enter while an input method composes text: it confirms the composition and nothing else. */
export function holdDuringComposition(event: React.KeyboardEvent) {
  // Safari ends the composition before the key event and reports key code 229 instead.
  if (event.key === "Enter" && (event.nativeEvent.isComposing || event.keyCode === 229)) event.stopPropagation();
}

/** One of few choices, each with an explanation, all visible. */
export function Choices<T extends string>({
  label,
  value,
  onChange,
  options,
  isDisabled = false,
}: {
  label: string;
  value: T;
  onChange: (value: T) => void;
  options: { id: T; name: string; hint?: string }[];
  isDisabled?: boolean;
}) {
  return (
    <RadioGroup className="field" value={value} onChange={(next) => onChange(next as T)} isDisabled={isDisabled}>
      <Label className="label">{label}</Label>
      <div className="choices">
        {options.map((option) => (
          <Radio key={option.id} value={option.id} className="choice">
            <span className="mark" />
            <span>{option.name}</span>
            {option.hint ? <span className="hint">{option.hint}</span> : null}
          </Radio>
        ))}
      </div>
    </RadioGroup>
  );
}

/** A form that submits once: not while it is pending, and not by the Enter that ends a composition. */
export function Form({
  onSubmit,
  children,
  label,
  pending = false,
}: {
  onSubmit: () => void;
  children: ReactNode;
  label?: string;
  pending?: boolean;
}) {
  const id = useId();
  return (
    <form
      id={id}
      noValidate
      aria-label={label}
      className="stack"
      onKeyDownCapture={(event) => {
        if (event.key === "Enter" && (event.nativeEvent.isComposing || event.keyCode === 229)) {
          event.preventDefault();
          event.stopPropagation();
        }
      }}
      onSubmit={(event) => {
        event.preventDefault();
        if (!pending) onSubmit();
      }}
    >
      {children}
    </form>
  );
}
